"""Asking the scorer a list of items: in one run or, where one ends early, in several."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path

from armload.analysis.run import Run
from armload.core.errors import RunError
from armload.core.ids import fingerprint_of
from armload.core.progress import Progress
from armload.core.values import counted
from armload.engines.job import Place
from armload.engines.scorer import SCORER, Scoring
from armload.evaluation.answered import Answered, gathered, note_earlier
from armload.evaluation.items import write_items
from armload.evaluation.placed import placed_runs
from armload.evaluation.way import Way, one_continuation
from armload.models.model import Model
from armload.runs.pipeline import execute
from armload.runs.predicting import foresight_of
from armload.runs.request import Request
from armload.runs.session import Session, session

Item = dict[str, object]


def answer_items(
    request: Request, model: Model, items: Sequence[Item], way: Way, progress: Progress
) -> Path:
    """Let a model on a board answer items; return the run's folder, for ``answers_in``.

    What runs on this machine have answered already, on the same board with the same program,
    model and settings, is not asked again. A run that ends early is followed by another one for
    the rest, as long as each brings answers.

    Raises:
        ArmloadError: a run could not be started, or brought no answer.
        KeyboardInterrupt: after what is there was kept.
    """
    with session(request, (SCORER,), progress) as where:
        return answer_items_there(where, model, items, way, progress, new=request.new)


def answer_items_there(
    where: Session,
    model: Model,
    items: Sequence[Item],
    way: Way,
    progress: Progress,
    *,
    new: bool,
) -> Path:
    """Do what ``answer_items`` does, on a board that is reached already and with the scorer built.

    Args:
        new: ask everything again, and do not take up a run that an interrupted command left.
    """
    # The rest alone might need less, but is to be asked in the same way.
    way = way.model_copy(update={"context_tokens": way.context_for(items, model)})
    name = _name(where, model, items, way)
    former = _folders(name) if new else []
    found = _found(name, former, progress)
    if found.answers:
        progress.say(
            f"{len(found.answers)} of {counted(len(items), 'answer')} are there already, the "
            f"latest in {found.folders[0].name}. (--new starts over.)"
        )
    while missing := _without(items, found.answers):
        run = _run(where, model, missing, way, progress, new=new, name=name)
        found = _found(name, former, progress)
        _check_progress(run, missing, _without(missing, found.answers), progress)
    return note_earlier(found)


def _name(where: Session, model: Model, items: Sequence[Item], way: Way) -> str:
    """Return an id that runs share if their answers are to the same items, computed alike."""
    board, program = where.connection.board.name, where.binaries[SCORER].sha256
    asked = json.dumps(items)
    return f"items-{fingerprint_of((board, program, model.sha256, way.model_dump_json(), asked))}"


def _folders(name: str) -> list[Path]:
    return [folder for folder, _ in placed_runs(name)]


def _found(name: str, former: Collection[Path], progress: Progress) -> Answered:
    folders = [folder for folder in _folders(name) if folder not in former]
    return gathered(folders[::-1], progress)


def _without(items: Sequence[Item], answered: Collection[str]) -> list[Item]:
    return [item for item in items if str(item["id"]) not in answered]


def _run(
    where: Session,
    model: Model,
    items: Sequence[Item],
    way: Way,
    progress: Progress,
    *,
    new: bool,
    name: str,
) -> Run:
    with tempfile.TemporaryDirectory() as scratch:
        path = write_items(items, Path(scratch) / "items.jsonl")
        plan = way.plan(items, path, model)
        engine = Scoring(plan, where.binaries[SCORER], model, path)
        run, _ = execute(
            *(where, engine, progress),
            new=new,
            place=Place(sweep=name, cell=0, round=0),
            foresee=foresight_of(*(where, model, one_continuation(plan), engine.memory, progress)),
        )
    return run


def _check_progress(
    run: Run, asked: Sequence[Item], left: Sequence[Item], progress: Progress
) -> None:
    if len(left) == len(asked):
        raise RunError(
            f"{run.board.name}: the scorer answered none of {counted(len(asked), 'item')}: "
            f"{run.exit.meaning}.",
            f"Its messages: armload show {run.id}",
        )
    if left:
        progress.say(
            f"{run.exit.meaning.capitalize()} after {len(asked) - len(left)} of {len(asked)} "
            "answers. Continuing with the rest."
        )
