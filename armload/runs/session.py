"""A board that answers, and the programs built for it: the pipeline's first two steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass

from armload.boards.board import Board, load_board
from armload.boards.connect import connect
from armload.boards.host import Host
from armload.boards.probe import Probe, probe
from armload.build.binary import Binary
from armload.build.builder import build
from armload.build.source import choose
from armload.build.target import load_target
from armload.buildhost.choose import workshop
from armload.core.progress import Progress
from armload.deploy.lease import Lease, leased
from armload.deploy.retry import FIRST_ANSWER_S, Retry, patiently
from armload.engines.engine import MemoryNeed, Settings
from armload.engines.prediction import Prediction
from armload.runs.prepare import check_cores, check_state
from armload.runs.request import Request


class Connection:
    """A connection to a board; a virtual one that went off comes back at another address.

    Args:
        board: what to reach; a virtual one is started when it is off.
    """

    def __init__(self, board: Board, progress: Progress) -> None:
        self.board = board
        self._progress = progress
        self.host = connect(board, progress)

    def again(self) -> None:
        """Connect anew, and switch a virtual board on again.

        Raises:
            ConnectError, MissingToolError: as for ``connect``.
        """
        self.host.close()
        self.host = connect(self.board, self._progress)

    def beside(self) -> Host:
        """Open another connection to the same board."""
        return connect(self.board, self._progress)

    def boot_id(self) -> str:
        """Return what the board's present boot is called."""
        return probe(self.host, self.board).conditions.boot_id

    def close(self) -> None:
        """End the connection."""
        self.host.close()


Foresee = Callable[[Probe, MemoryNeed | None], Prediction | None]
"""Predicts a run that needs so much memory on a board that is in this state; none where only a
refusal can be said."""


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
        UsageError, BoardError: the board does not meet the requirements; nothing was built then.
        ArmloadError: any of its kinds; whatever was done stays done.
    """
    board = load_board(request.board)
    if request.subtract_idle and board.power is None:
        progress.say(f"--subtract-idle has no effect: {board.name} has no power meter.")
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
        found = patiently(lambda: probe(connection.host, board, progress), Retry(FIRST_ANSWER_S))
        check_state(connection.host, connection.board, request.state, found)
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


def built(request: Request, programs: Sequence[str], progress: Progress) -> Mapping[str, Binary]:
    """Build programs of llama.cpp for a board that is not reached for it; by their names.

    Raises:
        ArmloadError: there is no such board or source, or they cannot be built.
    """
    target = load_target(load_board(request.board).target)
    source = choose(request.source, ref=request.ref, progress=progress)
    with workshop(on=request.on, compiler=request.compiler, progress=progress) as where:
        binaries = build(
            target, programs=programs, source=source, workshop=where, progress=progress
        )
    return dict(zip(sorted(programs), binaries, strict=True))  # as they are built


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
