"""Commands at a terminal of their own, which ask and are answered."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from tests.command_line import BIN


class Typist(Protocol):
    """Whoever types: where, and with which environment."""

    folder: Path
    environment: dict[str, str]


def words(text: str) -> str:
    """Return a text without the ends of its lines, wherever the terminal's width put them."""
    return re.sub(r"\s+", " ", text)


class Terminal:
    """A command at a terminal of its own."""

    def __init__(self, process: subprocess.Popen[bytes], controller: int) -> None:
        self.process = process
        self.said = ""
        self._controller = controller

    def waits_for(self, prompt: str) -> None:
        """Read until it asks for something; what was said before is forgotten."""
        heard = ""
        while prompt not in heard:
            assert select.select([self._controller], [], [], 60)[0], heard
            try:
                heard = words(heard + os.read(self._controller, 4096).decode())
            except OSError as error:
                raise AssertionError(f"it ended before it asked {prompt!r}:\n{heard}") from error
        self.said = heard

    def answers(self, answer: bytes) -> None:
        os.write(self._controller, answer)

    def ends(self) -> int:
        """Return the exit status; ``said`` is then what was said since the last question."""
        heard = b""
        while self.process.poll() is None:  # who does not read what it shows makes it wait
            if select.select([self._controller], [], [], 0.1)[0]:
                with suppress(OSError):
                    heard += os.read(self._controller, 4096)
        self.said = words(heard.decode())
        assert "Traceback" not in self.said
        return self.process.returncode


@contextmanager
def at_a_terminal(person: Typist, *command: str) -> Iterator[Terminal]:
    controller, terminal = pty.openpty()
    process = subprocess.Popen(
        ["setsid", "-c", str(BIN / "armload"), *command],
        cwd=person.folder,
        env={**person.environment, "COLUMNS": "300", "TERM": "dumb"},
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
    )
    os.close(terminal)
    try:
        yield Terminal(process, controller)
    finally:
        process.kill()
        process.wait()
        os.close(controller)
