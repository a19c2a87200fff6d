"""Programs in a pid namespace of their own, as a container with the same home has it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.command_line import ROOT

_UNSHARED = (
    "unshare",
    *(() if os.geteuid() == 0 else ("--user", "--map-root-user")),
    *("--pid", "--fork", "--kill-child", "--mount-proc"),
)


@contextmanager
def contained(code: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Run Python code there until the block ends; it is killed then."""
    try:
        allowed = subprocess.run([*_UNSHARED, "true"], capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("unshare is not installed")
    if allowed.returncode != 0:
        pytest.skip(f"no pid namespace can be made: {allowed.stderr.decode().strip()}")
    with subprocess.Popen(
        [*_UNSHARED, sys.executable, "-c", code, *words],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()
            process.wait()  # then its child has been killed too, before its input ends


def told_by(process: subprocess.Popen[str]) -> str:
    """Return the next line that it prints."""
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")
