"""The way of every run, from an engine and a board to a run that is kept.

build, reach: ``session``, once for all runs of a command. A board is reached before anything is
built, so that what is wrong with it is said at once.

lease, deploy, prepare, launch: ``underway``.

follow, collect, assemble, keep: ``execute``. The last three are ``fetch``, by which runs that
others have followed, or nobody, are fetched as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from armload.analysis.run import Run
from armload.boards.board import load_board
from armload.boards.probe import Probe, probe
from armload.build.binary import Binary
from armload.build.builder import build
from armload.build.source import choose
from armload.build.target import load_target
from armload.buildhost.choose import workshop
from armload.core.progress import Progress
from armload.core.values import Value
from armload.deploy.deployment import check_folder, deploy
from armload.deploy.layout import Layout
from armload.deploy.lease import Lease, leased
from armload.deploy.retry import FIRST_ANSWER_S, Patience, patiently
from armload.engines.defaults import DEFAULT_WAIT_S
from armload.engines.engine import Engine, Settings
from armload.engines.job import Job, Place
from armload.engines.prediction import Prediction
from armload.runs.connection import Connection
from armload.runs.describe import new_job
from armload.runs.fetch import fetch, tell_it_is_fetched
from armload.runs.follow import follow, stoppable
from armload.runs.launch import launch
from armload.runs.prepare import BoardState, check_cores, check_state, prepare
from armload.runs.resume import find_left

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


@dataclass(frozen=True, kw_only=True)
class Underway:
    """A run that has been started on a board, or found there.

    Attributes:
        connection: to the board.
        folder: of the run there.
        job: the run's, where this command started it.
        was_running: it was left there by an earlier command.
    """

    connection: Connection
    folder: PurePosixPath
    job: Job | None
    was_running: bool


@contextmanager
def underway(
    session: Session,
    engine: Engine,
    progress: Progress,
    *,
    new: bool,
    place: Place | None = None,
    foresee: Foresee | None = None,
) -> Iterator[Underway]:
    """Start an engine on a board; the run goes on there, within the block and after it.

    The same run, left there by an interrupted command of this machine, is taken up instead.
    Ctrl-C within the block ends the program on the board; what it left is fetched before the
    interruption continues.

    Args:
        new: start another run, even if the same one was left there.
        place: of the run in a sweep.
        foresee: predicts a new run before anything is copied, and refuses one that cannot be.

    Raises:
        ArmloadError: the run could not be started.
        KeyboardInterrupt: after what is there was kept.
    """
    connection = session.connection
    host, board = connection.host, connection.board
    left = None if new else find_left(connection, engine, progress)
    if left is None:
        check_folder(board, session.found)
        patiently(lambda: engine.check(host, board, session.found, progress))
    with nullcontext() if left else leased_board(session, progress) as lease:
        if lease is not None and lease.waited and not new:
            left = find_left(connection, engine, progress)
        if left is None:
            found = probe(host, board) if lease is not None and lease.waited else session.found
            prediction = foresee(found) if foresee else None
            deployment = deploy(host, board, engine.payload, progress)
            prepared = prepare(host, board, engine, session.request.state, deployment, progress)
            job = new_job(engine, board, prepared.site, place, prediction=prediction)
            on_board = Layout(workdir=board.workdir).run(job.id)
        else:
            job, on_board = None, left.folder
        with stoppable(connection, on_board, job, lease, progress):
            if job is not None and lease is not None:
                launch(host, on_board, engine, prepared, job, lease)
            yield Underway(
                connection=connection, folder=on_board, job=job, was_running=left is not None
            )


def execute(
    session: Session,
    engine: Engine,
    progress: Progress,
    *,
    new: bool,
    place: Place | None = None,
    reference: Run | None = None,
    plain: Sequence[Run] = (),
    foresee: Foresee | None = None,
) -> tuple[Run, Path]:
    """Run an engine on a board to its end and keep what comes back; return it with its folder.

    A program that fails is a result too: the run says so.

    Args:
        new, place, foresee: as for ``underway``.
        reference: a run with the expected output.
        plain: runs of the same without speculation, where it speculates.

    Raises:
        ArmloadError: the run could not be started, or its results not be fetched.
        KeyboardInterrupt: after what is there was kept.
    """
    with underway(session, engine, progress, new=new, place=place, foresee=foresee) as it:
        cut = follow(it.connection, it.folder, engine, it.job, progress)
        run, folder = fetch(
            *(it.connection.host, it.connection.board, it.folder, progress),
            job=it.job,
            cut=cut,
            reference=reference,
            plain=plain,
        )
        tell_it_is_fetched(it.connection.host, it.folder)
    return run, folder


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
