"""What verbs did on one board, or on each of several."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel

from armload.boards.board import Board, LocalReach
from armload.boards.shell import login_words
from armload.core.errors import ArmloadError, CombinedError
from armload.core.shell import join
from armload.core.values import Value, ValueList
from armload.fleet.threads import TaskResult
from armload.report.failure import Failure
from armload.report.layout import whole
from armload.report.result import BoardOutcome, Part, Result
from armload.report.table import list_table
from armload.runs.fetch import Pulled
from armload.runs.placing import Deployed

Done = TypeVar("Done")


@dataclass(frozen=True, kw_only=True)
class BoardsResult(Result, Generic[Done]):
    """What a verb did on each board; the document of the only one, or a list of outcomes.

    Attributes:
        of_several: the type of that list.
    """

    outcomes: tuple[TaskResult[str, Done], ...]
    of_several: ClassVar[type[ValueList[Any]]]

    @property
    def done(self) -> Mapping[str, Done]:
        """What there is, by the boards that did not fail."""
        return {one.board: one.result for one in self.outcomes if one.result is not None}

    @property
    def error(self) -> ArmloadError | None:
        return CombinedError.of_boards({one.board: one.error for one in self.outcomes})

    @abstractmethod
    def document_of(self, done: Done) -> BaseModel:
        """Return the document of one board."""

    def document(self) -> BaseModel:
        documents = {board: self.document_of(done) for board, done in self.done.items()}
        if len(self.outcomes) == len(documents) == 1:
            return next(iter(documents.values()))
        return self.of_several.model_validate(
            [
                {
                    "board": one.board,
                    "result": documents.get(one.board),
                    "error": Failure.of(one.error) if one.error else None,
                }
                for one in self.outcomes
            ]
        )


@dataclass(frozen=True, kw_only=True)
class DeployedOnBoards(BoardsResult[Deployed]):
    """A program and a model on boards.

    Attributes:
        verified: files that were there were read again.
        boards: by their names, those that are reached from here.
    """

    verified: bool
    boards: Mapping[str, Board] = field(default_factory=dict)
    of_several = ValueList[BoardOutcome[Deployed]]

    def document_of(self, done: Deployed) -> BaseModel:
        return done

    def view(self) -> Iterable[Part]:
        for board, done in self.done.items():
            what = "Copied to" if done.sent else "Verified on" if self.verified else "Already on"
            yield f"{what} {board}:\n  {done.program}\n  {done.model}"
            if board in self.boards:
                yield from _by_hand(self.boards[board], done)


def _by_hand(board: Board, done: Deployed) -> Iterator[Part]:
    """Yield the lines that run what was put on a board."""
    program, model = done.program_link or done.program, done.model_link or done.model
    launcher = board.reach.launcher if isinstance(board.reach, LocalReach) else ()
    is_found = done.program_link is not None and not launcher
    there = [program.name if is_found else str(program), "-m", _from(board, model)]
    ends = ["-no-cnv", "-p", "Hello", "-n", "32"]
    yield "Run it by hand:"
    yield whole(f"  armload shell --board {board.name} -- {join([*launcher, *there, *ends])}")
    if login := login_words(board):
        line = [str(program), "-m", str(model), *ends]
        typed = line if join(line) == " ".join(line) else [join(line)]
        yield whole(f"  {join([*login, *typed])}")


def _from(board: Board, path: PurePosixPath) -> str:
    """Return a path as it is typed in the board's work folder."""
    inside = path.is_relative_to(board.workdir)
    return str(path.relative_to(board.workdir) if inside else path)


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


@dataclass(frozen=True, kw_only=True)
class FetchedFromBoards(BoardsResult[Pulled]):
    """Runs that were fetched from boards."""

    of_several = ValueList[BoardOutcome[FetchedRuns]]

    @property
    def error(self) -> ArmloadError | None:
        failed = CombinedError.of_boards({one.board: one.error for one in self.outcomes})
        lost = {board: done for board, done in self.done.items() if done.lost}
        if not lost:
            return failed
        every = [_lost(board, done) for board, done in lost.items()]
        if failed is not None:
            return CombinedError(failed.first, [*every, *failed.every])
        return CombinedError(next(iter(next(iter(lost.values())).lost.values())), every)

    def document_of(self, done: Pulled) -> BaseModel:
        failed = (
            UnfetchedRun(run=run, error=Failure.of(error)) for run, error in done.lost.items()
        )
        return FetchedRuns(runs=tuple(run.id for run in done.runs), failed=tuple(failed))

    def view(self) -> Iterable[Part]:
        done = self.done
        if runs := [run for each in done.values() for run in each.runs]:
            yield list_table(runs)
        elif done and not any(each.lost for each in done.values()):
            yield f"There is nothing to fetch from {', '.join(done)}."


def _lost(board: str, done: Pulled) -> ArmloadError:
    count, names = len(done.lost), ", ".join(done.lost)
    remedies = dict.fromkeys(error.remedy for error in done.lost.values() if error.remedy)
    return ArmloadError(
        f"{count} of {len(done.runs) + count} runs on {board} could not be fetched: {names}.",
        " ".join(remedies),
    )
