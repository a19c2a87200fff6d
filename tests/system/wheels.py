"""Python with the armload of a wheel in place of the clone's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def run(imports: list[Path], folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder, with a cache there, and ``imports`` before all that it has."""
    path = os.pathsep.join(map(str, imports))
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path, "ARMLOAD_CACHE": str(folder / "cache")},
        check=False,
        capture_output=True,
        text=True,
    )


def output(installed: Path, folder: Path, *words: str) -> str:
    """Return what a program prints that imports the installed armload, in an empty folder."""
    done = run([installed], folder, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout
