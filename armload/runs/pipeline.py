"""The way of every run, from an engine and a board to a run that is kept.

build, reach: ``session.session``, once for all runs of a command. A board is reached before
anything is built, so that what is wrong with it is said at once.

lease, deploy, prepare, launch: ``underway``.

follow, collect, assemble, keep: ``execute``. The last three are ``fetch``, by which runs that
others have followed, or nobody, are fetched as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from armload.analysis.run import Run
from armload.boards.probe import probe
from armload.core.progress import Progress
from armload.deploy.deployment import check_folder, deploy
from armload.deploy.layout import Layout
from armload.deploy.retry import patiently
from armload.engines.engine import Engine
from armload.engines.job import Job, SweepPoint
from armload.runs.assemble import new_job
from armload.runs.fetch import fetch, tell_it_is_fetched
from armload.runs.follow import follow, stoppable
from armload.runs.footprint import checked_memory
from armload.runs.prepare import launch, prepare
from armload.runs.resume import find_left
from armload.runs.session import Connection, Foresee, Session, leased_board


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
    place: SweepPoint | None = None,
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
            prediction = None
            if foresee is not None:
                engine = checked_memory(session, engine, found, progress)
                prediction = foresee(found, engine.memory)
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
    place: SweepPoint | None = None,
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
