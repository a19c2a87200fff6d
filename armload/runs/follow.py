"""A run on a board while it goes on: following it to its end, and stopping it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import PurePosixPath

from armload.boards.failures import SwitchedOffError
from armload.boards.probe import probe
from armload.core.errors import ArmloadError, RunError
from armload.core.progress import Progress
from armload.core.workspace import runs_folder
from armload.deploy.exit_record import Cut
from armload.deploy.follow import CutShortError, ProgressUpdate, stop
from armload.deploy.follow import follow as follow_on_board
from armload.deploy.lease import Lease
from armload.deploy.stored import list_runs
from armload.engines.engine import Engine
from armload.engines.job import Job
from armload.runs.fetch import fetch, tell_it_is_fetched
from armload.runs.session import Connection


@contextmanager
def stoppable(
    connection: Connection,
    on_board: PurePosixPath,
    job: Job | None,
    lease: Lease | None,
    progress: Progress,
) -> Iterator[None]:
    """Let Ctrl-C end a run on the board, and fetch what it has done."""
    try:
        yield
    except KeyboardInterrupt:
        progress.say(
            "Stopping the run on the board. Press Ctrl-C again to quit now; the partial run "
            f"can then be fetched with armload pull --board {connection.board.name}"
        )
        try:
            stop(connection.host, on_board)
            if lease is not None and not _goes_on(connection, on_board):
                # It may not have begun. If it still does, it finds no lease, and ends at once.
                lease.take_back()
            fetch(connection.host, connection.board, on_board, progress, job=job)
            tell_it_is_fetched(connection.host, on_board)
            progress.say(f"The partial run is kept: armload show {on_board.name}")
        except ArmloadError as error:  # not begun yet, or out of reach: still an interruption
            progress.say(str(error))
        raise


def follow(
    connection: Connection,
    on_board: PurePosixPath,
    engine: Engine,
    job: Job | None,
    progress: Progress,
) -> Cut | None:
    """Follow a run to its end, and stop it where its engine says that its work is done.

    Args:
        engine: says what is counted, and when its work is done.
        job: the run's, where this command started it.

    Returns:
        What cut it short; none where it left its exit status.

    Raises:
        ConnectError: the board stayed away; the run may still go on there.
        RunError: there is no such run.
    """
    label = f"Running on {connection.board.name}"
    with progress.step(label, total=engine.total, unit=engine.unit) as step:
        stopped = False

        def grown(now: ProgressUpdate) -> None:
            nonlocal stopped
            step.update(engine.progress(now), note=engine.note(now))
            if not stopped and engine.is_done(now):
                with closing(connection.beside()) as beside:
                    stop(beside, on_board, finished=True)
                stopped = True

        while True:
            try:
                follow_on_board(
                    connection.host,
                    on_board,
                    grown,
                    keep=runs_folder() / on_board.name,
                )
                return None
            except CutShortError as error:
                progress.say(error.message)
                return error.cut
            except RunError:
                # A power cut may have taken the folder with it.
                if job is None or _boot_id(connection) == job.before.boot_id:
                    raise
                return "restart"
            except SwitchedOffError:
                connection.again()


def _goes_on(connection: Connection, on_board: PurePosixPath) -> bool:
    runs = list_runs(connection.host, connection.board.workdir)
    return any(run.folder == on_board and run.state == "running" for run in runs)


def _boot_id(connection: Connection) -> str:
    return probe(connection.host, connection.board).conditions.boot_id
