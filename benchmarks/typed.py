"""armload, run in the workspace of a benchmark as a user would type it."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


def typed(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run armload, whatever its exit status is, and capture what it prints."""
    return subprocess.run(
        [_program(), *words],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def armload(folder: Path, *words: str, enter: str = ":", before: Sequence[str] = ()) -> str:
    """Run armload, and return what it prints; its progress is shown.

    Args:
        enter: a shell command that comes first.
        before: words that go before the program.
    """
    command = shlex.join([*before, _program(), *words])
    done = subprocess.run(
        ["sh", "-c", f"{enter} && exec {command}"],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout


def _program() -> str:
    return str(Path(sys.executable).with_name("armload"))
