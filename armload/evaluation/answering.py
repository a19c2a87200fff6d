"""One run of the scorer over a list of items."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from armload.core.errors import RunError
from armload.core.progress import Progress
from armload.engines.scorer import SCORER, Scoring
from armload.evaluation.items import write_items
from armload.evaluation.way import Way, one_continuation
from armload.models.model import Model
from armload.runs.pipeline import Request, Session, execute, session
from armload.runs.predicting import foresight_of


def answer_items(
    request: Request,
    model: Model,
    items: Sequence[dict[str, object]],
    way: Way,
    progress: Progress,
) -> Path:
    """Let a model on a board answer items; return the run's folder, in which the answers are.

    Raises:
        ArmloadError: the run could not be started, or ended early.
    """
    with session(request, (SCORER,), progress) as where:
        return answer_items_there(where, model, items, way, progress, new=request.new)


def answer_items_there(
    where: Session,
    model: Model,
    items: Sequence[dict[str, object]],
    way: Way,
    progress: Progress,
    *,
    new: bool,
) -> Path:
    """Do what ``answer_items`` does, on a board that is reached already and with the scorer built.

    Args:
        new: start another run, even if an interrupted command left the same one on the board.
    """
    with tempfile.TemporaryDirectory() as scratch:
        path = write_items(items, Path(scratch) / "items.jsonl")
        plan = way.plan(items, path, model)
        engine = Scoring(plan, where.binaries[SCORER], model, path)
        run, folder = execute(
            *(where, engine, progress),
            new=new,
            foresee=foresight_of(*(where, model, one_continuation(plan), engine.memory, progress)),
        )
    if run.exit.status != 0:
        raise RunError(
            f"{where.connection.board.name}: the scorer did not finish: {run.exit.meaning}.",
            f"Its messages: armload show {run.id}",
        )
    return folder
