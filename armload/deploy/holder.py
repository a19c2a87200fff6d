"""Who has a board or has started a run there."""

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
from armload.core.ids import boot_id
from armload.core.values import Value, parse_json

_UNKNOWN = "unknown"


class LeaseHolder(Value):
    """A process on a workstation. Its words hold no character that means anything to a shell.

    Attributes:
        user: the person's login name.
        workstation: its name, and an identifier that tells it apart from others of that name.
        process: the process there.
    """

    user: str
    workstation: str
    process: Started

    @property
    def who(self) -> str:
        """The person and the workstation's name, for people."""
        return f"{self.user}@{self.workstation.rpartition('-')[0]}"

    @property
    def is_here(self) -> bool:
        return self.workstation == workstation_id()

    def is_gone(self) -> bool:
        """Say whether it was a process of this machine that has ended for sure."""
        return self.is_here and self.process.is_gone()

    def is_alive_here(self) -> bool:
        """Say whether it is a process of this machine that runs."""
        return self.is_here and self.process.is_alive()


class RunMark(Value):
    """What a run's folder says of its start, as one word for a shell.

    Attributes:
        fingerprint: a checksum over what decides a run.
        holder: who started it, and had the board's lease then.
    """

    fingerprint: str
    holder: LeaseHolder

    @classmethod
    def read(cls, word: str) -> RunMark | None:
        """Read a mark's word; none when it is none."""
        try:
            return cls.model_validate(parse_json(word))
        except ValueError:
            return None

    @property
    def word(self) -> str:
        return self.model_dump_json()

    def was_left_here(self) -> bool:
        """Say whether a command of this machine started it that is not there any more."""
        process = self.holder.process
        # No process outlives its boot, but one of another container may be alive.
        is_gone = process.is_gone() or process.boot_id != boot_id()
        return self.holder.is_here and is_gone


def this_process() -> LeaseHolder:
    process = Started.of(os.getpid())
    if process is None:
        raise RuntimeError("this process does not exist")
    return LeaseHolder(user=_person(), workstation=workstation_id(), process=process)


@cache
def workstation_id() -> str:
    """Return this machine's name with an identifier, which is unique for it and the user."""
    path = Path(platformdirs.user_state_dir("armload")) / "workstation"
    try:
        known = _word(path.read_text(encoding="ascii").strip())
    except (OSError, ValueError):
        known = secrets.token_hex(6)
        try:
            write_whole(path, known.encode())
        except OSError:  # a home directory that cannot be written: the host name must do
            known = _UNKNOWN
    return f"{_word(socket.gethostname())}-{known}"


def _person() -> str:
    try:
        return _word(getpass.getuser())
    except (KeyError, OSError):  # a number without a name, as in containers
        return str(os.getuid())


def _word(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._]+", "_", text) or _UNKNOWN
