"""Who uses a board, and the word on a run's folder that tells whose it is."""

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
from armload.core.values import Value

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

    def is_gone(self) -> bool:
        """Say whether it was a process of this machine that has ended for sure."""
        return self.workstation == workstation_id() and self.process.is_gone()

    def is_alive_here(self) -> bool:
        """Say whether it is a process of this machine that runs."""
        return self.workstation == workstation_id() and self.process.is_alive()


def this_process() -> LeaseHolder:
    """Return the owner that this process is."""
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


class RunHolder(Value):
    """Who started a run, and what for.

    Attributes:
        fingerprint: a checksum over what decides a run.
        workstation: where it was started.
        process: that started it there.
    """

    fingerprint: str
    workstation: str
    process: Started

    @classmethod
    def of_this_process(cls, fingerprint: str) -> RunHolder:
        """Return the mark of a run that this process starts."""
        owner = this_process()
        return cls(fingerprint=fingerprint, workstation=owner.workstation, process=owner.process)

    @classmethod
    def read(cls, word: str) -> RunHolder | None:
        """Read a mark's word; none when it is none."""
        parts = word.split(":")
        if len(parts) != 6 or not re.fullmatch(r"[0-9]{1,10}", parts[2]):
            return None
        fingerprint, workstation, pid, start_mark, boot, namespace = parts
        process = Started(
            pid=int(pid), start_mark=start_mark, boot_id=boot, pid_namespace=namespace
        )
        return cls(fingerprint=fingerprint, workstation=workstation, process=process)

    @property
    def word(self) -> str:
        """The mark as one word without any character that means something to a shell."""
        process = self.process
        where = f"{process.boot_id}:{process.pid_namespace}"
        return f"{self.fingerprint}:{self.workstation}:{process.pid}:{process.start_mark}:{where}"

    def was_left_here(self) -> bool:
        """Say whether a command of this machine started it that is not there any more."""
        # No process outlives its boot, but one of another container may be alive.
        is_gone = self.process.is_gone() or self.process.boot_id != boot_id()
        return self.workstation == workstation_id() and is_gone
