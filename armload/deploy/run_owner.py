"""The word on a run's folder that tells whose it is and what was asked for."""

from __future__ import annotations

from armload.boards.virtual.process import Started
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
        if len(parts) != 4 or not parts[2].isdecimal():
            return None
        process = Started(pid=int(parts[2]), start_mark=parts[3])
        return cls(fingerprint=parts[0], workstation=parts[1], process=process)

    @property
    def word(self) -> str:
        """The mark as one word without any character that means something to a shell."""
        process = self.process
        return f"{self.fingerprint}:{self.workstation}:{process.pid}:{process.start_mark}"

    def was_left_here(self) -> bool:
        """Say whether a command of this machine started it that is not there any more."""
        return self.workstation == workstation_id() and not self.process.is_alive()
