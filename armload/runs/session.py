"""A board that answers, and the programs that are built for it: the pipeline's first two steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass

from armload.boards.board import load_board
from armload.boards.probe import Probe, probe
from armload.build.binary import Binary
from armload.build.builder import build
from armload.build.source import choose
from armload.build.target import load_target
from armload.buildhost.choose import workshop
from armload.core.progress import Progress
from armload.core.values import Value
from armload.deploy.lease import Lease, leased
from armload.deploy.retry import FIRST_ANSWER_S, Patience, patiently
from armload.engines.defaults import DEFAULT_WAIT_S
from armload.engines.engine import Settings
from armload.engines.prediction import Prediction
from armload.runs.connection import Connection
from armload.runs.prepare import BoardState, check_cores, check_state

Foresee = Callable[[Probe], Prediction | None]
"""Predicts a run on a board that is in this state; none where only a refusal can be said."""


class Request(Value):
    """Where something is to run, and how it is built for that.

    Attributes:
        board: a file in ``boards/``.
        source: a file in ``toolchains/sources``, a llama.cpp folder, or the address of a git
            repository; empty for the pinned source.
        ref: a branch, tag or commit of the repository; empty for its default branch.
        compiler: the engine's: ``zig``, ``gnu`` or ``native``; empty for what is usual there.
        on: a build host that compiles the engine; empty for this machine.
        wait_s: how long to wait for a board that somebody else uses.
        new: start another run, even if an interrupted command left the same one on the board.
        state: in which state the board is to be for each run.
    """

    board: str
    source: str = ""
    ref: str = ""
    compiler: str = ""
    on: str = ""
    wait_s: float = DEFAULT_WAIT_S
    new: bool = False
    state: BoardState = BoardState()


@dataclass(frozen=True, kw_only=True)
class Session:
    """A board that answers, and the programs that were built for it.

    Attributes:
        request: what was asked for.
        connection: to the board.
        found: what the board reported when it was reached, as programs see it.
        binaries: by the names of the programs.
    """

    request: Request
    connection: Connection
    found: Probe
    binaries: Mapping[str, Binary]


@contextmanager
def session(
    request: Request,
    programs: Sequence[str],
    progress: Progress,
    *,
    settings: Sequence[Settings] = (),
) -> Iterator[Session]:
    """Reach a board, start it when it is a virtual one, and build what is missing.

    Args:
        request: where, and from which source.
        programs: of llama.cpp, that are needed; may be none.
        settings: that runs will ask for there.

    Raises:
        UsageError, BoardError: the board has not what is asked for; nothing was built then.
        ArmloadError: any of its kinds; whatever was done stays done.
    """
    board = load_board(request.board)
    target = load_target(board.target)
    source = choose(request.source, ref=request.ref, progress=progress) if programs else None
    with ExitStack() as stack:
        where = None
        if source is not None:
            where = stack.enter_context(
                workshop(on=request.on, compiler=request.compiler, progress=progress)
            )
            if not request.on:
                where.compiler(target)  # a missing one is reported before a board boots
        connection = stack.enter_context(closing(Connection(board, progress)))
        # Minutes of compiling are no time to learn what the board says at once.
        found = patiently(lambda: probe(connection.host, board, progress), Patience(FIRST_ANSWER_S))
        check_state(connection.host, request.state, found)
        for each in settings:
            check_cores(each, board, found)
        binaries = (
            build(target, programs=programs, source=source, workshop=where, progress=progress)
            if programs
            else ()
        )
        yield Session(
            request=request,
            connection=connection,
            found=found,
            binaries=dict(zip(sorted(programs), binaries, strict=True)),  # as they are built
        )


def leased_board(session: Session, progress: Progress) -> AbstractContextManager[Lease]:
    """Have the board to oneself within the block; the errors are those of ``leased``."""
    connection = session.connection
    return leased(
        connection.host,
        connection.board.workdir,
        progress,
        wait_s=session.request.wait_s,
        beside=connection.beside,
    )
