"""Asking the questions on boards: what has no answer yet, until nothing is missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from armload.core.errors import ArmloadError, RunError
from armload.core.progress import Progress
from armload.engines.answers import Answer, read_answers
from armload.engines.job import Place
from armload.engines.scorer import SCORER
from armload.evaluation.asking import Asking
from armload.evaluation.foreseeing import foresight, say_duration
from armload.evaluation.items import items_of, write_items
from armload.evaluation.placed import placed_runs
from armload.evaluation.question import Question
from armload.evaluation.record import Evaluated
from armload.evaluation.sources import source_of
from armload.evaluation.task import Task
from armload.evaluation.way import Way
from armload.models.model import Model
from armload.runs.pipeline import execute
from armload.runs.request import Request
from armload.runs.session import Session, session

Note = Callable[[int, Sequence[Answer]], str]
"""Given a part and some more of its answers, says in a few words how it stands."""


def evaluate_on(
    request: Request,
    evaluated: Evaluated,
    task: Task,
    models: Sequence[Model],
    way: Way,
    progress: Progress,
    *,
    share: tuple[int, int] = (0, 1),
    note: Note,
) -> None:
    """Say how long it takes, and ask on one board what is missing, part by part.

    A run that ends early is followed by another one for the rest, as long as each brings answers.

    Args:
        evaluated: gets the answers; complete ones only.
        models: by part.
        way: threads, memory and time.
        share: of several boards, which one this is, and how many there are: each takes its own
            questions.
        note: is given each part's answers, those that are there already first.

    Raises:
        ArmloadError: a run could not be started, or brought no answer.
        KeyboardInterrupt: after what is there was kept.
    """
    harvest(evaluated, progress)
    with session(request, (SCORER,), progress) as where:
        asked = [
            (
                _engine(where, evaluated, task, part, model, way, missing, note),
                evaluated.evaluation.parts[part].max_tokens,
            )
            for part, model in enumerate(models)
            if (missing := _shared(evaluated, part, share))
        ]
        say_duration(where, asked, way.max_time_s, progress)
        evaluate_there(
            where, evaluated, task, models, way, progress, new=request.new, share=share, note=note
        )


def evaluate_there(
    where: Session,
    evaluated: Evaluated,
    task: Task,
    models: Sequence[Model],
    way: Way,
    progress: Progress,
    *,
    new: bool,
    share: tuple[int, int] = (0, 1),
    note: Note,
) -> None:
    """Do what ``evaluate_on`` does, on a board that is reached already and with the scorer built.

    Args:
        new: start another run, even if an interrupted command left the same one on the board.
    """
    for part, model in enumerate(models):
        while missing := _shared(evaluated, part, share):
            before, asked = len(missing), evaluated.evaluation.parts[part]
            engine = _engine(where, evaluated, task, part, model, way, missing, note)
            place = Place(sweep=evaluated.evaluation.id, cell=part, round=0)
            try:
                run, _ = execute(
                    *(where, engine, progress),
                    new=new,
                    place=place,
                    foresee=foresight(where, engine, asked.max_tokens, progress),
                )
            finally:
                harvest(evaluated, progress)
            left = len(_shared(evaluated, part, share))
            if engine.time_is_up:
                break
            if left == before:
                raise RunError(
                    f"{where.connection.board.name}: the scorer answered none of {before} "
                    f"questions: {run.exit.meaning}.",
                    f"Its messages: armload show {run.id}",
                )
            if left:
                progress.say(
                    f"{run.exit.meaning.capitalize()} after {before - left} of {before} "
                    "answers. Continuing with the rest."
                )


def harvest(evaluated: Evaluated, progress: Progress) -> None:
    """Take the answers from the runs of an evaluation that are on this machine."""
    name = evaluated.evaluation.id
    # Both names begin with the time in UTC.
    for folder, place in placed_runs(name, since=name.partition("-")[0]):
        source = evaluated.source(folder.name)
        if source is None or source.doubts is None:
            source = source_of(folder, place.cell)
        try:
            evaluated.add(place.cell, read_answers(folder / "stdout"), source)
        except ArmloadError as error:
            progress.say(f"skipped: {error.message}")


def _shared(evaluated: Evaluated, part: int, share: tuple[int, int]) -> list[Question]:
    number, of = share
    mine = {question.id for question in evaluated.questions[number::of]}
    return [question for question in evaluated.missing(part) if question.id in mine]


def _engine(
    where: Session,
    evaluated: Evaluated,
    task: Task,
    part: int,
    model: Model,
    way: Way,
    questions: Sequence[Question],
    note: Note,
) -> Asking:
    asked = evaluated.evaluation.parts[part]
    items = items_of(task, asked, questions)
    board = where.connection.board.name
    path = write_items(items, evaluated.folder / "items" / f"{part}-{board}.jsonl")
    note(part, evaluated.answers(part))
    return Asking(
        way.plan(items, path, model),
        where.binaries[SCORER],
        model,
        path,
        evaluation=evaluated.evaluation.id,
        note=partial(note, part),
        max_time_s=way.max_time_s and way.max_time_s / len(evaluated.evaluation.parts),
    )
