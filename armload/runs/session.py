"""A board that answers, and the programs built for it: the pipeline's first two steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass

from armload.boards.board import Board, VirtualReach, is_group, load_board
from armload.boards.connect import check_not_stopped, connect, is_off
from armload.boards.failures import PoweredOffError
from armload.boards.group import Group, load_group, members_of
from armload.boards.host import Host
from armload.boards.probe import Probe, probe
from armload.build.binary import Binary
from armload.build.builder import build
from armload.build.programs import SCORER, by_names, project_of_program
from armload.build.source import Source, choose, pinned_source
from armload.build.target import load_target
from armload.buildhost.remote import build_backend
from armload.core.children import meanwhile
from armload.core.progress import Progress
from armload.deploy.claims import PREPARING, Activity
from armload.deploy.compatibility import check_vulkan
from armload.deploy.lease import Lease, leased
from armload.deploy.retry import FIRST_ANSWER_S, Retry, with_retries
from armload.engines.engine import MemoryNeed, Settings
from armload.engines.prediction import Prediction
from armload.engines.rpc_server import RPC_SERVER
from armload.engines.spread import Spread
from armload.runs.board_services import report_ended_services
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
            PoweredOffError: somebody has stopped it.
        """
        self.host.close()
        check_not_stopped(self.board)
        self.host = connect(self.board, self._progress)

    def beside(self) -> Host:
        """Open another connection to the same board."""
        return connect(self.board, self._progress)

    def boot_id(self) -> str:
        """Return what the board's present boot is called."""
        return probe(self.host, self.board).conditions.boot_id

    def close(self) -> None:
        self.host.close()


Predictor = Callable[[Probe, MemoryNeed | None, Spread | None], Prediction | None]
"""Predicts a run that needs so much memory on a board that is in this state, or is spread over a
group so; none where only a refusal can be said."""


@dataclass(frozen=True, kw_only=True)
class ReachedBoard:
    """A board that answered, from here or a gateway, and the programs that were built for it.

    Attributes:
        request: what was asked for.
        main_board: the board itself; of a group, the one that runs the program.
        found: what it reported when it was reached, as programs see it.
        binaries: by the names of the programs.
        group: that the board runs a program for; none for itself alone.
    """

    request: Request
    main_board: Board
    found: Probe
    binaries: Mapping[str, Binary]
    group: Group | None = None

    @property
    def board(self) -> Board:
        """What runs are said to run on: the board, under its group's name if it has one."""
        board = self.main_board
        if self.group is None:
            return board
        known = {"name": self.group.name, "description": self.group.description}
        return board.model_copy(update={**known, "hardware": "", "labels": ()})


@dataclass(frozen=True, kw_only=True)
class Session(ReachedBoard):
    """A board that this machine is connected to.

    Attributes:
        connection: to the board.
        other_members: the group's other boards, with the same programs.
    """

    connection: Connection
    other_members: tuple[Session, ...] = ()

    @property
    def members(self) -> tuple[Session, ...]:
        """The boards of the group, this one first; of a single board, itself."""
        return (self, *self.other_members)


@contextmanager
def session(
    request: Request,
    programs: Sequence[str],
    progress: Progress,
    *,
    settings: Sequence[Settings] = (),
    takes_groups: bool = False,
    board: Board | None = None,
) -> Iterator[Session]:
    """Reach a board, start it when it is a virtual one, and build what is missing meanwhile.

    Args:
        request: where, and from which source.
        programs: of llama.cpp, that are needed; may be none. For a group, ``RPC_SERVER`` is added.
        settings: that runs will ask for there.
        takes_groups: in place of a board, a group may be named: all its members are reached.
        board: the one that the request names, as it is reached; none for as its file says.

    Raises:
        UsageError, BoardError: the board does not meet the requirements; nothing was built then,
            and what was begun while it booted is stopped.
        ArmloadError: any of its kinds; whatever was done stays done.
    """
    group = load_group(request.board) if takes_groups and is_group(request.board) else None
    boards = list(group.boards if group else (board or load_board(request.board),))
    board = boards[0]
    if request.subtract_idle and board.power is None:
        progress.say(f"--subtract-idle has no effect: {board.name} has no power meter.")
    target = load_target(board.target)
    needed = with_servers(programs, group)
    sources = _sources(needed, request, progress)
    with ExitStack() as stack:
        where = None
        if sources:
            where = stack.enter_context(
                build_backend(
                    on=request.on,
                    compiler=request.compiler,
                    vulkan=request.vulkan,
                    progress=progress,
                )
            )
            if not request.on:
                where.compiler(target)  # a missing one is reported before a board boots

        def compiled(progress: Progress) -> Mapping[str, Binary]:
            if not needed:
                return {}
            ready: dict[str, Binary] = {}
            for source, its in sources:
                made = build(target, programs=its, source=source, backend=where, progress=progress)
                ready |= by_names(its, made)
            return ready

        def reached(progress: Progress) -> list[tuple[Connection, Probe]]:
            found = [
                _reached(
                    each,
                    settings if each is board else (),
                    stack,
                    progress,
                    vulkan=request.vulkan,
                )
                for each in boards
            ]
            return _largest_first(found) if needed and RPC_SERVER not in needed else found

        if programs and not request.on and is_off(board):
            # Its first start is mostly downloads, which leave the CPU to the compilers.
            with meanwhile(compiled, progress) as compiling:
                (connection, found), *others_reached = reached(compiling.progress)
                ready = compiling.result()
        else:
            # Minutes of compiling are no time to learn what the board says at once.
            before = reached(progress)
            ready = compiled(progress)
            (connection, found), *others_reached = [_reached_still(*each) for each in before]
        yield Session(
            request=request,
            main_board=connection.board,
            connection=connection,
            found=found,
            binaries=ready,
            group=group,
            other_members=tuple(
                Session(
                    request=request.model_copy(update={"board": its.board.name}),
                    main_board=its.board,
                    connection=its,
                    found=as_found,
                    binaries=ready,
                )
                for its, as_found in others_reached
            ),
        )


def _reached(
    board: Board,
    settings: Sequence[Settings],
    stack: ExitStack,
    progress: Progress,
    *,
    vulkan: bool,
) -> tuple[Connection, Probe]:
    with progress.step(f"Connecting to {board.name}"):
        connection = stack.enter_context(closing(Connection(board, progress)))
        retry = Retry(unanswered_s=FIRST_ANSWER_S)
        found = with_retries(lambda: probe(connection.host, board, progress), retry)
        report_ended_services(connection.host, board, progress)
        check_state(connection.host, board, settings, found)
    for each in settings:
        check_cores(each, board, found)
    if vulkan:
        check_vulkan(board, found)
    return connection, found


def _reached_still(connection: Connection, found: Probe) -> tuple[Connection, Probe]:
    """Reach a virtual board anew that was restarted while programs were compiled."""
    board = connection.board
    if not isinstance(board.reach, VirtualReach):
        return connection, found
    try:
        with_retries(lambda: connection.host.run("true"))
    except PoweredOffError:
        connection.again()
        found = with_retries(lambda: probe(connection.host, board))
    return connection, found


def _largest_first(reached: list[tuple[Connection, Probe]]) -> list[tuple[Connection, Probe]]:
    """Return the members of a group with the one first that has most memory."""
    largest = max(reached, key=lambda each: each[1].conditions.memory_total_bytes)
    return [largest, *(each for each in reached if each is not largest)]


def with_servers(programs: Sequence[str], group: Group | None) -> Sequence[str]:
    """Return programs with the one that a group's other members run; none where none is needed.

    The nodes of another project run its own program, and need the scorer alone beside it.
    """
    of_llama_cpp = {each for each in programs if project_of_program(each) == "llama.cpp"}
    has_own_nodes = len(of_llama_cpp) < len(programs) and of_llama_cpp <= {SCORER}
    if not programs or group is None or has_own_nodes:
        return programs
    return tuple(dict.fromkeys((*programs, RPC_SERVER)))


def _sources(
    programs: Sequence[str], request: Request, progress: Progress
) -> list[tuple[Source, tuple[str, ...]]]:
    """Return the sources that programs are built from, with the programs, llama.cpp's first."""
    found: list[tuple[Source, tuple[str, ...]]] = []
    for project in sorted({*map(project_of_program, programs)}, reverse=True):
        its = tuple(program for program in programs if project_of_program(program) == project)
        if project == "llama.cpp":
            found.append((choose(request.source, ref=request.ref, progress=progress), its))
        else:
            found.append((pinned_source(project), its))
    return found


def built(request: Request, programs: Sequence[str], progress: Progress) -> Mapping[str, Binary]:
    """Build programs for a board that is not reached for it; by their names.

    Of a group, they are built for its first member.

    Raises:
        ArmloadError: there is no such board or source, or they cannot be built.
    """
    first, *_ = members_of(request.board)
    target = load_target(first.target)
    found: dict[str, Binary] = {}
    with build_backend(
        on=request.on, compiler=request.compiler, vulkan=request.vulkan, progress=progress
    ) as where:
        for source, its in _sources(programs, request, progress):
            made = build(target, programs=its, source=source, backend=where, progress=progress)
            found |= by_names(its, made)
    return found


def leased_board(
    session: Session, progress: Progress, doing: Activity = PREPARING
) -> AbstractContextManager[Lease]:
    """Have the board to oneself within the block."""
    connection = session.connection
    return leased(
        connection.host,
        connection.board.workdir,
        progress,
        wait_s=session.request.wait_s,
        beside=connection.beside,
        doing=doing,
    )


@contextmanager
def leased_boards(
    session: Session, progress: Progress, doing: Activity = PREPARING
) -> Iterator[Mapping[str, Lease]]:
    """Have all members of a group to oneself within the block; return their leases by name.

    Every command takes them in the same order, so that no two wait for each other.
    """
    boards = {each.connection.board.name: each for each in session.members}
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(leased_board(boards[name], progress, doing))
            for name in sorted(boards)
        }
