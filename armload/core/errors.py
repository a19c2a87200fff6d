"""Every way armload can fail, each with its exit status.

An error is raised once, where the cause is known, and shown once, by the
command line. ``message`` says where and what; ``remedy`` says what to do now.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

ErrorKind = Literal[
    "fault",
    "disk",
    "usage",
    "data",
    "missing tool",
    "build",
    "connection",
    "board",
    "transfer",
    "run",
    "busy",
    "slower",
    "inconclusive",
    "different",
    "memory",
    "untrusted",
    "interrupted",
]


class ArmloadError(Exception):
    """Base of all errors that are shown to a person without a traceback.

    Args:
        message: where it happened and what is wrong, one sentence.
        remedy: what to do now; empty when the message already says it.
    """

    kind: ClassVar[ErrorKind] = "fault"
    exit_status: ClassVar[int] = 1

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message}\n{self.remedy}" if self.remedy else self.message


class CombinedError(ArmloadError):
    """Several errors, such as of some of several boards, which are shown one after the other.

    Args:
        first: the one that decides the exit status, and is the document where there is no other.
        every: what is shown.
    """

    def __init__(self, first: ArmloadError, every: Sequence[ArmloadError]) -> None:
        super().__init__(first.message, first.remedy)
        self.first = first
        self.every = tuple(every)

    @classmethod
    def of_boards(cls, boards: Mapping[str, ArmloadError | None]) -> CombinedError | None:
        """Return why work failed on some of several boards; none where it did on none."""
        errors = {name: error for name, error in boards.items() if error is not None}
        if not errors:
            return None
        every = [
            ArmloadError(
                error.message if error.message.startswith(name) else f"{name}: {error.message}",
                error.remedy,
            )
            for name, error in errors.items()
        ]
        failed = f"{len(errors)} of {len(boards)} boards failed: {', '.join(errors)}."
        return cls(next(iter(errors.values())), [*every, ArmloadError(failed)])


class DiskError(ArmloadError):
    """This machine's own disk is full, or does not let a file or folder be read or written."""

    kind = "disk"


class UsageError(ArmloadError):
    """An argument, or a name of a board, target or model, that makes no sense."""

    kind = "usage"
    exit_status = 2


class NoSuchResultError(UsageError):
    """No recorded result of a kind has this name; one of another kind may.

    Args:
        noun: what one of the kind is called, such as ``run``.
        reference: as it was typed.
    """

    def __init__(self, message: str, remedy: str, *, noun: str, reference: str) -> None:
        super().__init__(message, remedy)
        self.noun = noun
        self.reference = reference


class DataError(ArmloadError):
    """A file that a person wrote or supplied is malformed: YAML, GGUF, run.json."""

    kind = "data"
    exit_status = 3


class NewerFormatError(DataError):
    """A file that a newer armload wrote: whole, and not ours to touch.

    Args:
        known: the highest version that this armload reads.
    """

    def __init__(self, where: object, version: int, known: int) -> None:
        super().__init__(
            f"{where}: format {version} is newer than this armload reads (up to {known}).",
            "Update armload: install a newer release, or run 'git pull && ./setup' in its clone.",
        )


class MissingToolError(ArmloadError):
    """A program or package that this machine needs is not installed."""

    kind = "missing tool"
    exit_status = 4


class BuildError(ArmloadError):
    """The engine could not be fetched, configured, compiled, or failed inspection."""

    kind = "build"
    exit_status = 5


class ConnectError(ArmloadError):
    """A board does not answer, refuses the login, or shows an unexpected host key."""

    kind = "connection"
    exit_status = 6


class PermanentConnectError(ConnectError):
    """What somebody has to put right before the next attempt: waiting for the board is useless."""


class UnresolvedNameError(ConnectError):
    """The name of a host cannot be resolved: it is misspelled, or not known yet."""


class LostConnectionError(ConnectError):
    """The connection to a board that had answered dropped during a command."""


class BoardError(ArmloadError):
    """A board answers, but cannot do what is asked: no space, wrong CPU, read-only folder."""

    kind = "board"
    exit_status = 7


class TransferError(ArmloadError):
    """Bytes did not arrive as they were sent."""

    kind = "transfer"
    exit_status = 8


class RunError(ArmloadError):
    """The program on the board ended without doing its work."""

    kind = "run"
    exit_status = 9


class BusyError(ArmloadError):
    """Somebody else uses the board."""

    kind = "busy"
    exit_status = 10


class SlowerError(ArmloadError):
    """A comparison was set to fail on this: B is slower than A by more than allowed."""

    kind = "slower"
    exit_status = 11


class InconclusiveError(ArmloadError):
    """A comparison that was to pass or fail is of runs that cannot be judged, or not compared."""

    kind = "inconclusive"
    exit_status = 12


class DifferentError(ArmloadError):
    """A comparison was set to fail on this: logits differ by more than the tolerance."""

    kind = "different"
    exit_status = 13


class LocalMemoryError(ArmloadError):
    """This machine has not enough memory for what is asked."""

    kind = "memory"
    exit_status = 14


class UntrustedError(ArmloadError):
    """A file of the workspace would decide what runs, and this user has not agreed to that."""

    kind = "untrusted"
    exit_status = 15


SKIPS_FINISHED = (
    "Nothing that was built, downloaded, copied or measured is lost: the same command skips what "
    "is finished, and starts a stopped run again."
)


class InterruptionError(ArmloadError):
    """Somebody pressed Ctrl-C; the exit status is the one that shells report then."""

    kind = "interrupted"
    exit_status = 130


class ForbiddenValueError(ValueError):
    """A value of a file is not allowed, for a reason that has a remedy.

    Attributes:
        remedy: what to do, in sentences.
    """

    def __init__(self, words: str, remedy: str) -> None:
        super().__init__(words)
        self.remedy = remedy

    @classmethod
    def of(cls, error: ArmloadError) -> ForbiddenValueError:
        """Return an error as one of the value that led to it."""
        words = error.message.removesuffix(".")
        return cls(words[:1].lower() + words[1:], error.remedy)


def error_of(kind: ErrorKind, message: str, remedy: str) -> ArmloadError:
    """Return an error of a kind that another machine has told."""
    return {each.kind: each for each in _all_below(ArmloadError)}[kind](message, remedy)


def _all_below(kind: type[ArmloadError]) -> list[type[ArmloadError]]:
    # The more general ones come last, and have the kind's last word.
    below = [each for sub in kind.__subclasses__() for each in _all_below(sub)]
    return [*(each for each in below if "kind" in vars(each)), kind]
