"""A run on a board from its start, or from where it is found, to its coming home."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from armload.bench.home import SEEN_FILE, bring_home
from armload.bench.reached import Reached
from armload.bench.record import Job
from armload.bench.run import Run
from armload.boards.failures import SwitchedOffError
from armload.boards.probe import probe
from armload.core.errors import ArmloadError, BoardError, RunError
from armload.core.progress import Progress
from armload.core.workspace import runs_folder
from armload.deploy.ending import Cut
from armload.deploy.follow import CutShortError, follow, stop
from armload.deploy.lease import Lease
from armload.deploy.stored import StoredRun


def started(
    start: Callable[[], None],
    reached: Reached,
    on_board: PurePosixPath,
    job: Job,
    lease: Lease,
    progress: Progress,
    *,
    unit: str,
    total: int | None = None,
) -> tuple[Run, Path]:
    """Start a run, follow it, and bring it home; Ctrl-C ends it, and brings home what there is.

    Args:
        start: starts it, detached.
        reached: the board.
        on_board: the run's folder there.
        job: what is started.
        lease: of the board; the run keeps it from now on.
        progress: where it is shown.
        unit: of what is counted in its trace.
        total: how many of these are to come; none where nobody knows.

    Raises:
        ArmloadError: it could not be started, or its results not be fetched.
        KeyboardInterrupt: after what is there was kept.
    """
    with _stoppable(reached, on_board, job, progress):
        lease.hand_to_run()
        try:
            start()
        except BoardError:
            lease.take_back()
            raise
        cut = _followed(reached, on_board, job, progress, total=total, unit=unit)
        return bring_home(reached.host, reached.board, on_board, progress, job=job, cut=cut)


def taken_over(
    reached: Reached,
    left: StoredRun,
    progress: Progress,
    *,
    unit: str,
    total: int | None = None,
) -> tuple[Run, Path]:
    """Follow a run that an interrupted command has left, and bring it home.

    Raises:
        ArmloadError, KeyboardInterrupt: as for ``started``.
    """
    how = "is under way" if left.state == "running" else "has ended"
    progress.say(
        f"The same run, left by an interrupted command, {how} on {reached.board.name}: "
        f"taking over {left.id}. (--new starts another.)"
    )
    with _stoppable(reached, left.folder, None, progress):
        cut = _followed(reached, left.folder, None, progress, total=total, unit=unit)
        return bring_home(reached.host, reached.board, left.folder, progress, cut=cut)


@contextmanager
def _stoppable(
    reached: Reached, on_board: PurePosixPath, job: Job | None, progress: Progress
) -> Iterator[None]:
    """Let Ctrl-C end a run on the board, and bring home what it has done."""
    try:
        yield
    except KeyboardInterrupt:
        progress.say(
            "Stopping the run on the board. Once more Ctrl-C leaves at once: what the run has done "
            f"can then be fetched with armload pull --board {reached.board.name}"
        )
        try:
            stop(reached.host, on_board)
            bring_home(reached.host, reached.board, on_board, progress, job=job)
            progress.say(f"What it had done is kept: armload show --run {on_board.name}")
        except ArmloadError as error:  # not begun yet, or out of reach: still an interruption
            progress.say(str(error))
        raise


def _followed(
    reached: Reached,
    on_board: PurePosixPath,
    job: Job | None,
    progress: Progress,
    *,
    unit: str,
    total: int | None,
) -> Cut | None:
    """Follow a run to its end; return what cut it short."""
    with progress.step(f"Running on {reached.board.name}", total=total, unit=unit) as step:

        def grown(count: int, text: str) -> None:
            step.update(count, note=" ".join(text.split())[-40:])

        while True:
            try:
                follow(
                    reached.host,
                    on_board,
                    grown,
                    keep=runs_folder() / on_board.name / SEEN_FILE,
                )
                return None
            except CutShortError as error:
                progress.say(error.message)
                return error.cut
            except RunError:
                # A cut in the power may have taken the folder with it.
                if job is None or _boot_id(reached) == job.before.boot_id:
                    raise
                return "restart"
            except SwitchedOffError:
                reached.again()


def _boot_id(reached: Reached) -> str:
    return probe(reached.host, reached.board).conditions.boot_id
