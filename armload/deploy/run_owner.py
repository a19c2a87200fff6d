"""The word on a run's folder that tells whose it is and what was asked for."""

from __future__ import annotations

import re

from armload.boards.virtual.process import Started
from armload.core.ids import boot_id
from armload.core.values import Value
from armload.deploy.owner import this_process, workstation_id


class RunOwner(Value):
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
    def of_this_process(cls, fingerprint: str) -> RunOwner:
        """Return the mark of a run that this process starts."""
        owner = this_process()
        return cls(fingerprint=fingerprint, workstation=owner.workstation, process=owner.process)

    @classmethod
    def read(cls, word: str) -> RunOwner | None:
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
