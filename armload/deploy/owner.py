"""Who uses a board: a person, a laptop, and one process of theirs."""

from __future__ import annotations

import getpass
import os
import re
import secrets
import socket
from functools import cache
from pathlib import Path

import platformdirs

from armload.boards.virtual.process import Started
from armload.core.files import write_whole
from armload.core.values import Value

_UNTOLD = "unknown"


class Owner(Value):
    """One process on one laptop. Its words hold no character that means anything to a shell.

    Attributes:
        user: the person's login name.
        laptop: the laptop's name, and what tells it apart from another of that name.
        process: the process there.
    """

    user: str
    laptop: str
    process: Started

    @property
    def who(self) -> str:
        """The person and the laptop's name, for people."""
        return f"{self.user}@{self.laptop.rpartition('-')[0]}"

    def is_gone(self) -> bool:
        """Say whether it was a process of this very laptop that has ended."""
        return self.laptop == laptop() and not self.process.is_alive()


def this_process() -> Owner:
    """Return the owner that this process is."""
    process = Started.of(os.getpid())
    if process is None:
        raise RuntimeError("this process does not exist")
    return Owner(user=_person(), laptop=laptop(), process=process)


@cache
def laptop() -> str:
    """Return a name that only this laptop has, and only for this person."""
    path = Path(platformdirs.user_state_dir("armload")) / "laptop"
    try:
        known = _word(path.read_text(encoding="ascii").strip())
    except (OSError, ValueError):
        known = secrets.token_hex(6)
        try:
            write_whole(path, known.encode())
        except OSError:  # a home that cannot be written: the laptop's name must do
            known = _UNTOLD
    return f"{_word(socket.gethostname())}-{known}"


def _person() -> str:
    try:
        return _word(getpass.getuser())
    except (KeyError, OSError):  # a number without a name, as in containers
        return str(os.getuid())


def _word(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._]+", "_", text) or _UNTOLD
