"""Runs the programs of the converters' environment, and shows each line that they write."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from armload.core import children

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


def run_checked(
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

    def note(line: str) -> None:
        if line.strip():
            tail.append(line.rstrip())
            watch(line)

    status = children.run_watched(
        command,
        environment={**_without_python(), **environment},
        watch=note,
        keep_open=keep_open,
        folder=folder,
    )
    if status != 0:
        raise FailedProgramError(status, tail)


def _without_python() -> dict[str, str]:
    """Return this process's variables, save those that lead a Python to other packages."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("PYTHON") and name != "__PYVENV_LAUNCHER__"
    }
