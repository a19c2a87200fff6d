"""Finding the run that an interrupted command of this laptop has left on a board."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from armload.bench.home import bring_home, is_here
from armload.bench.reached import Reached
from armload.core.errors import BoardError, DataError, TransferError
from armload.core.progress import Progress
from armload.deploy.mark import Mark
from armload.deploy.patience import patiently
from armload.deploy.stored import StoredRun, list_runs

OLDEST = timedelta(days=1)
"""What was measured longer ago is no answer to a command of now; ``pull`` fetches it."""


def left_for(reached: Reached, asked_for: str, progress: Progress) -> StoredRun | None:
    """Look on a board for the run that answers a request; keep those that were cut short.

    A line that breaks meanwhile is made anew.

    Raises:
        ArmloadError: the board stayed away, or what it says of its runs makes no sense.
    """
    host, board = reached.host, reached.board
    runs = patiently(lambda: list_runs(host, board.workdir))
    for cut in cut_runs(runs, asked_for):
        try:
            run, _ = bring_home(host, board, cut.folder, progress, cut=cut.cut)
        except (BoardError, DataError, TransferError) as error:
            # What a restart has spoilt must not stand in the way of every further run.
            progress.say(f"{cut.id} of an interrupted command is left there: {error.message}")
            continue
        progress.say(f"{cut.id} of an interrupted command is kept: {run.exit.meaning}.")
    return left_run(runs, asked_for, datetime.now(UTC))


def left_run(runs: Sequence[StoredRun], asked_for: str, now: datetime) -> StoredRun | None:
    """Return the newest run that answers a request, and that nobody waits for any more.

    It goes on or has ended by itself, this laptop started it, the command that did so is not
    there any more, and the run is not here yet. One that a person stopped, or that a restart
    cut short, answers nothing.
    """
    for run in sorted(runs, key=lambda run: run.id, reverse=True):
        mark = Mark.read(run.mark)
        if (
            mark is not None
            and mark.asked_for == asked_for
            and mark.was_left_here()
            and run.state in ("running", "ended")
            and not run.stopped
            and not run.collected
            and not is_here(run.id)
            and _is_recent(run.id, now)
        ):
            return run
    return None


def cut_runs(runs: Sequence[StoredRun], asked_for: str) -> list[StoredRun]:
    """Return the runs of the same request that were cut short and nobody waits for any more."""
    return [
        run
        for run in runs
        if run.state == "interrupted"
        and (mark := Mark.read(run.mark)) is not None
        and mark.asked_for == asked_for
        and mark.was_left_here()
        and not is_here(run.id)
    ]


def _is_recent(run_id: str, now: datetime) -> bool:
    try:
        began = datetime.strptime(run_id.partition("-")[0], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError:
        return False
    return now - began < OLDEST
