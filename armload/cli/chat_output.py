"""An answer on standard output as it comes: thoughts dimmed on a terminal, left out elsewhere."""

from __future__ import annotations

import os
import sys

from armload.core.values import visible

_DIM, _PLAIN = "\x1b[2m", "\x1b[22m"


class AnswerOutput:
    """Writes one answer.

    No character of it steers the terminal.
    """

    def __init__(self) -> None:
        self._is_terminal = sys.stdout.isatty()
        self._can_dim = self._is_terminal and os.environ.get("TERM", "dumb") != "dumb"
        self._was_thought: bool | None = None
        self._ends_line = True

    def hear(self, is_thought: bool, text: str) -> None:
        """Write what has come."""
        if is_thought and not self._is_terminal:
            return
        shown = visible(text)
        if self._was_thought is None:
            shown = shown.lstrip("\n")
        if self._was_thought and not is_thought:
            sys.stdout.write("\n" if self._ends_line else "\n\n")
        dims = is_thought and self._can_dim
        sys.stdout.write(f"{_DIM}{shown}{_PLAIN}" if dims else shown)
        sys.stdout.flush()
        self._was_thought = is_thought
        self._ends_line = shown.endswith("\n") if shown else self._ends_line

    def end(self) -> None:
        """End the answer's last line, if there is one."""
        if not self._ends_line:
            sys.stdout.write("\n")
            sys.stdout.flush()
            self._ends_line = True
