"""What an interrupted command leaves on a board, and how the same command finds it again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path, PurePosixPath

from armload.core.errors import ArmloadError, BoardError, DataError, TransferError
from armload.core.ids import begun
from armload.core.progress import Progress
from armload.core.workspace import runs_folder
from armload.deploy.board_runs import StoredRun, list_runs
from armload.deploy.follow import stop
from armload.deploy.lease import Lease
from armload.deploy.retry import with_retries
from armload.engines.engine import Engine
from armload.engines.job import Job
from armload.runs.fetch import fetch, fetch_once, mark_fetched
from armload.runs.session import Connection
from armload.runs.store import is_here


@contextmanager
def stoppable(
    connection: Connection,
    on_board: PurePosixPath,
    job: Job | None,
    lease: Lease | None,
    progress: Progress,
    ended: Callable[[Path, Progress], None] = lambda _folder, _progress: None,
) -> Iterator[None]:
    """Let Ctrl-C end a run on the board, and fetch what it has done.

    Args:
        ended: is called with the run's folder on this machine before that is assembled.
    """
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
            ended(runs_folder() / on_board.name, progress)
            fetch(connection.host, connection.board, on_board, progress, job=job)
            mark_fetched(connection.host, on_board)
            progress.say(f"The partial run is kept: armload show {on_board.name}")
        except ArmloadError as error:  # not begun yet, or out of reach: still an interruption
            progress.say(str(error))
        raise


def _goes_on(connection: Connection, on_board: PurePosixPath) -> bool:
    runs = list_runs(connection.host, connection.board.workdir)
    return any(run.folder == on_board and run.state == "running" for run in runs)


OLDEST = timedelta(days=1)
"""What was measured longer ago is no answer to a command of now; ``pull`` fetches it."""


def starts_anew(*, new: bool) -> Iterator[bool]:
    """Yield for each run of a command whether it starts anew.

    Only the first can be one that an interrupted command has left on the board.

    Args:
        new: the first one starts anew, too.
    """
    yield new
    while True:
        yield True


def find_left(connection: Connection, engine: Engine, progress: Progress) -> StoredRun | None:
    """Look on a board for an engine's run that was left there; keep those that were cut short.

    A service is found as long as it runs; an ended one answers nothing.

    A connection that drops meanwhile is made again.
    """
    host, board, fingerprint = connection.host, connection.board, engine.fingerprint
    runs = with_retries(lambda: list_runs(host, board.workdir))
    for cut in cut_runs(runs, fingerprint):
        try:
            run, _ = fetch_once(host, board, cut.folder, progress, cut=cut.cut)
            mark_fetched(host, cut.folder)
        except (BoardError, DataError, TransferError) as error:
            # What a restart has spoilt must not stand in the way of every further run.
            progress.say(
                f"{cut.id} of an interrupted command was left on the board: {error.message}"
            )
            continue
        progress.say(
            f"Fetched {cut.id}, which an interrupted command had left there ({run.exit.meaning})."
        )
    left = left_run(runs, fingerprint, datetime.now(UTC), is_service=engine.is_service)
    if left is not None and not engine.is_service:
        how = "is running" if left.state == "running" else "has ended"
        progress.say(
            f"The same run, left by an interrupted command, {how} on {board.name}: resuming "
            f"{left.id}. (Use --new to start over.)"
        )
    return left


def left_run(
    runs: Sequence[StoredRun], fingerprint: str, now: datetime, *, is_service: bool = False
) -> StoredRun | None:
    """Return the newest run that answers a request, and that nobody waits for any more.

    It is running or has ended by itself, this machine started it, the command that did so is not
    there any more, and the run is not here yet. One that a person stopped, or that a restart
    cut short, answers nothing.
    """
    for run in sorted(runs, key=lambda run: run.id, reverse=True):
        if (
            _was_left(run, fingerprint)
            and run.state in (("running",) if is_service else ("running", "ended"))
            and not run.stopped
            and not run.collected
            and not is_here(run.id)
            and (is_service or ((began := begun(run.id)) is not None and now - began < OLDEST))
        ):
            return run
    return None


def cut_runs(runs: Sequence[StoredRun], fingerprint: str) -> list[StoredRun]:
    """Return the runs of the same request that were cut short and nobody waits for any more."""
    return [
        run
        for run in runs
        if run.state == "interrupted" and _was_left(run, fingerprint) and not is_here(run.id)
    ]


def _was_left(run: StoredRun, fingerprint: str) -> bool:
    mark = run.mark
    return mark is not None and mark.fingerprint == fingerprint and mark.was_left_here()
