"""Errors as JSON: alone, or beside the results of a verb that does several tasks."""

from __future__ import annotations

from pathlib import PurePosixPath

from armload.core.errors import ArmloadError, ErrorKind
from armload.core.values import Value


class Failure(Value):
    """An error.

    Attributes:
        kind: each exit status has one, but 1, which has ``disk`` and ``fault``.
        message: where it happened and what is wrong.
        remedy: what to do now; empty when the message already says it.
        exit_status: of a command that ends with this error.
    """

    kind: ErrorKind
    message: str
    remedy: str
    exit_status: int

    @classmethod
    def of(cls, error: ArmloadError) -> Failure:
        """Describe an error."""
        return cls.model_validate(error, from_attributes=True)


class FailedDocument(Value):
    """The document of a verb that failed and has no results."""

    error: Failure


class UnfetchedRun(Value):
    """A run that stays on its board, and why."""

    run: str
    error: Failure


class FetchedRuns(Value):
    """What became of the finished runs on a board that were not here.

    Attributes:
        runs: ids of those that are here now.
        failed: those that could not be fetched.
    """

    runs: tuple[str, ...]
    failed: tuple[UnfetchedRun, ...]


class FetchedBoard(Value):
    """What was fetched from one of several boards.

    Attributes:
        board: its name.
        runs, failed: as for one board.
        error: why it failed; none if it did not.
    """

    board: str
    runs: tuple[str, ...] = ()
    failed: tuple[UnfetchedRun, ...] = ()
    error: Failure | None = None

    @classmethod
    def of(
        cls, board: str, fetched: FetchedRuns | None, error: ArmloadError | None
    ) -> FetchedBoard:
        return cls(
            board=board,
            runs=fetched.runs if fetched else (),
            failed=fetched.failed if fetched else (),
            error=Failure.of(error) if error else None,
        )


class DeployedBoard(Value):
    """What became of one of several boards.

    Attributes:
        board: its name.
        program, model: checked files there; none if it failed.
        sent: something had to be copied; none if it failed.
        error: why it failed; none if it did not.
    """

    board: str
    program: PurePosixPath | None = None
    model: PurePosixPath | None = None
    sent: bool | None = None
    error: Failure | None = None
