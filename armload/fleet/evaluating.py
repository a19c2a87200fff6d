"""An evaluation whose questions several boards share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from armload.core.errors import ArmloadError
from armload.core.progress import Progress
from armload.evaluation.evaluating import Note, evaluate_on
from armload.evaluation.preparing import EvaluationRequest, prepare
from armload.evaluation.record import EvaluationFolder
from armload.evaluation.scorer_settings import ScorerSettings
from armload.fleet.threads import BoardTask, serve
from armload.runs.reach import Reach
from armload.runs.request import Request


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
