"""Every way armload can fail, each with its exit status.

An error is raised once, where the cause is known, and shown once, by the
command line. ``message`` says where and what; ``remedy`` says what to do now.
"""

from __future__ import annotations

from typing import ClassVar


class ArmloadError(Exception):
    """Base of all errors that are shown to a person without a traceback.

    Args:
        message: where it happened and what is wrong, one sentence.
        remedy: what to do now; empty when the message already says it.
    """

    exit_status: ClassVar[int] = 1

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message}\n{self.remedy}" if self.remedy else self.message


class DiskError(ArmloadError):
    """This machine's own disk is full, or does not let itself be written."""


class UsageError(ArmloadError):
    """An argument, or a name of a board, target or model, that makes no sense."""

    exit_status = 2


class DataError(ArmloadError):
    """A file that a person wrote or supplied is malformed: YAML, GGUF, run.json."""

    exit_status = 3


class MissingToolError(ArmloadError):
    """A program or package that the laptop needs is not there."""

    exit_status = 4


class BuildError(ArmloadError):
    """The engine could not be fetched, configured, compiled, or failed inspection."""

    exit_status = 5


class ConnectError(ArmloadError):
    """A board does not answer, refuses the login, or shows an unexpected host key."""

    exit_status = 6


class BoardError(ArmloadError):
    """A board answers, but cannot do what is asked: no space, wrong CPU, read-only folder."""

    exit_status = 7


class TransferError(ArmloadError):
    """Bytes did not arrive as they were sent."""

    exit_status = 8


class RunError(ArmloadError):
    """The program on the board ended without doing its work."""

    exit_status = 9


class BusyError(ArmloadError):
    """Somebody else uses the board."""

    exit_status = 10


class SlowerError(ArmloadError):
    """A comparison found what it was told to fail for: B is slower than A by more than allowed."""

    exit_status = 11


INTERRUPTED_EXIT_STATUS = 130
"""Exit status after Ctrl-C, as shells report it."""
