"""Work that boards share: the runs of a sweep, or the questions of an evaluation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from armload.analysis.run import Run
from armload.bench.board import bench_board
from armload.bench.combination import Combination, programs_of
from armload.bench.suite import Suite
from armload.bench.sweep import SweepFolder, new_sweep, resume_or_begin
from armload.bench.sweeping import Begun
from armload.boards.board import load_board
from armload.core.errors import ArmloadError, UsageError
from armload.core.progress import Progress
from armload.engines.job import SweepPoint
from armload.evaluation.evaluating import Note, evaluate_on
from armload.evaluation.preparing import EvaluationRequest, prepare
from armload.evaluation.record import EvaluationFolder
from armload.evaluation.scorer_settings import ScorerSettings
from armload.fleet.threads import BoardTask, TaskResult, serve
from armload.runs.reach import Reach
from armload.runs.request import Request
from armload.runs.session import built

Report = Callable[[str, SweepPoint, Run | ArmloadError], None]
"""Called with a board's name, and how a run ended there or why it could not be started."""


def share_sweep(
    request: Request,
    boards: Sequence[str],
    cells: Sequence[Combination],
    progress: Progress,
    *,
    repeats: int,
    reference: Run | None,
    suite: Suite | None,
    reach: Reach,
    begun: Begun,
    report: Report,
) -> tuple[SweepFolder, Mapping[str, ArmloadError]]:
    """Run every cell once for each repeat, on whichever board is free.

    It resumes what an interrupted command for the same boards has begun, unless ``request.new`` is
    set.

    Args:
        boards: identical ones, as ``check_equal`` makes sure.
        reach: how they are reached.

    Returns:
        The sweep, and each board's error. Runs are missing from it only if no board was left.
    """
    binaries = built(request.model_copy(update={"board": boards[0]}), programs_of(cells), progress)
    engines = [cell.engine(binaries) for cell in cells]
    sweep = new_sweep(boards, engines, repeats=repeats, warmups=0, suite=suite)
    journal = resume_or_begin(sweep, progress, new=request.new)

    @contextmanager
    def opened(board: str, own: Progress) -> Iterator[Callable[[SweepPoint], Run]]:
        theirs = request.model_copy(update={"board": board})
        with bench_board(reach, theirs, cells, own, reference=reference) as it:
            yield it.run

    with journal.locked(progress):
        begun(journal)
        done = len(journal.entries)
        at = reach.begun(journal.sweep.id, boards)
        tasks = [
            BoardTask(item=place, boards=tuple(boards), home=at.get(place, ""))
            for place in journal.missing()
        ]
        label = f"Sweep on {len(boards)} boards"
        with progress.step(label, total=done + len(tasks), unit="runs") as step:
            step.update(done)

            def ended(one: TaskResult[SweepPoint, Run]) -> None:
                journal.note(one.item, one.outcome)
                report(one.board, one.item, one.outcome)
                step.update(len(journal.entries))

            served = serve(tasks, opened, progress, ended=ended)
    return journal, served.errors


def check_equal(boards: Sequence[str]) -> None:
    """Refuse to divide a sweep between boards that are not identical."""
    files = [load_board(name) for name in boards]
    for field in ("hardware", "target"):
        values = {getattr(each, field): each.name for each in files}
        if len(values) > 1:
            (one, first), (other, second) = list(values.items())[:2]
            raise UsageError(
                f"--share divides a sweep between identical boards, but {first} and {second} "
                f"differ in {field}: {one or 'none'} / {other or 'none'}.",
                "Without --share, the sweep is repeated on each board.",
            )


def evaluate_on_boards(
    request: Request,
    asked: EvaluationRequest,
    settings: ScorerSettings,
    reach: Reach,
    progress: Progress,
    note_of: Callable[[EvaluationFolder], Note],
) -> tuple[EvaluationFolder, Mapping[str, ArmloadError | None]]:
    """Ask what is not answered yet.

    Each board has its own part of the questions; another one asks what it leaves.

    Args:
        note_of: returns what says how good the answers are so far.

    Returns:
        The evaluation, and why boards failed.

    Raises:
        ArmloadError: the only board failed; answers that are there are kept.
    """
    prepared = prepare(asked, progress, new=request.new)
    evaluated, boards = prepared.evaluated, asked.boards
    note = note_of(evaluated)

    @contextmanager
    def opened(board: str, own: Progress) -> Iterator[Callable[[int], None]]:
        theirs = request.model_copy(update={"board": board})
        yield lambda number: evaluate_on(
            *(theirs, prepared, settings, own),
            share=(number, len(boards)),
            note=note,
            reach=reach,
        )

    tasks = [BoardTask(item=n, boards=boards, home=board) for n, board in enumerate(boards)]
    with evaluated.locked(progress):
        served = serve(tasks, opened, progress)
    failed = {one.board: one.error for one in served.results if one.error} | {**served.errors}
    return evaluated, {board: failed.get(board) for board in boards}
