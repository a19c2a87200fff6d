"""Runs the programs of the converters' environment, and shows each line that they write."""

from __future__ import annotations

import os
import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from armload.build.ninja import end
from armload.core.children import known

_LINES_KEPT = 40


class FailedProgramError(Exception):
    """A program ended with a status other than 0.

    Args:
        status: that it ended with; negative for the signal that killed it.
        lines: the end of what it wrote.
    """

    def __init__(self, status: int, lines: Sequence[str]) -> None:
        super().__init__(status)
        self.status = status
        self.lines = tuple(lines)

    @property
    def shown(self) -> str:
        """The end of its output, indented."""
        return "\n".join(f"  {line}" for line in self.lines[-12:])


def run_watched(
    command: Sequence[str],
    *,
    folder: Path,
    environment: Mapping[str, str],
    watch: Callable[[str], None],
    keep_open: int,
) -> None:
    """Run a program and show each line to ``watch``; a carriage return ends a line, too.

    Args:
        command: the program and its arguments.
        folder: it runs in.
        environment: in addition to this process's own.
        watch: is called with each line.
        keep_open: a file descriptor that the program inherits: a lock that it keeps.

    Raises:
        FailedProgramError: its status is not 0.
    """
    tail: deque[str] = deque(maxlen=_LINES_KEPT)
    with (
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            cwd=folder,
            env={**_without_python(), **environment},
            text=True,
            encoding="utf-8",
            errors="replace",
            pass_fds=[keep_open],
            start_new_session=True,
        ) as process,
        known(process),
    ):
        try:
            assert process.stdout is not None  # noqa: S101 - it is a pipe, as set above
            for line in process.stdout:
                if line.strip():
                    tail.append(line.rstrip())
                    watch(line)
            status = process.wait()
        except BaseException:
            end(process)
            raise
    if status != 0:
        raise FailedProgramError(status, tail)


def _without_python() -> dict[str, str]:
    """Return this process's variables, save those that lead a Python to other packages."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("PYTHON") and name != "__PYVENV_LAUNCHER__"
    }
