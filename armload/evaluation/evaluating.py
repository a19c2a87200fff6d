"""TimedScoring the questions on boards: what has no answer yet, until nothing is missing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from armload.analysis.run import Run
from armload.core.errors import ArmloadError
from armload.core.progress import Progress
from armload.engines.answers import Answer, read_answers
from armload.engines.job import Place
from armload.engines.scorer import ANSWERS, SCORER
from armload.evaluation.foreseeing import foresight, say_duration
from armload.evaluation.items import items_of, write_items
from armload.evaluation.preparing import PreparedEvaluation
from armload.evaluation.question import Question
from armload.evaluation.record import AnswerSource, EvaluationFolder
from armload.evaluation.scorer_run import TimedScoring, ask_all, placed_runs
from armload.evaluation.scorer_settings import ScorerSettings
from armload.runs import store
from armload.runs.assemble import read_job
from armload.runs.pipeline import execute
from armload.runs.request import Request
from armload.runs.session import Session, session

ABOUT_ANSWERS = ("exit", "output")
"""Findings on how a run ended: what was answered until then is as good as any answer."""

Note = Callable[[int, Sequence[Answer]], str]
"""Given a part and some more of its answers, says in a few words how it stands."""


def evaluate_on(
    request: Request,
    prepared: PreparedEvaluation,
    settings: ScorerSettings,
    progress: Progress,
    *,
    share: tuple[int, int] = (0, 1),
    note: Note,
) -> None:
    """Say how long it takes, and ask on one board what is missing, part by part.

    A run that ends early is followed by another one for the rest, as long as each brings answers.

    Args:
        prepared: gets the answers; complete ones only.
        settings: threads, memory and time.
        share: of several boards, which one this is, and how many there are: each takes its own
            questions.
        note: is given each part's answers, those that are there already first.

    Raises:
        ArmloadError: a run could not be started, or brought no answer.
        KeyboardInterrupt: after what is there was kept.
    """
    evaluated = prepared.evaluated
    harvest(evaluated, progress)
    with session(request, (SCORER,), progress) as where:
        asked = [
            (_engine(where, prepared, number, settings, missing, note), part.max_tokens)
            for number, part in enumerate(evaluated.evaluation.parts)
            if (missing := _shared(evaluated, number, share))
        ]
        say_duration(where, asked, settings.max_time_s, progress)
        evaluate_there(where, prepared, settings, progress, new=request.new, share=share, note=note)


def evaluate_there(
    where: Session,
    prepared: PreparedEvaluation,
    settings: ScorerSettings,
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
    evaluated, board = prepared.evaluated, where.connection.board.name

    def ask(part: int, missing: Sequence[Question]) -> tuple[Run, bool]:
        engine = _engine(where, prepared, part, settings, missing, note)
        most_tokens = evaluated.evaluation.parts[part].max_tokens
        try:
            run, _ = execute(
                *(where, engine, progress),
                new=new,
                place=Place(sweep=evaluated.evaluation.id, cell=part, round=0),
                foresee=foresight(where, engine, most_tokens, progress),
            )
        finally:
            harvest(evaluated, progress)
        return run, engine.time_is_up

    for part in range(len(prepared.models)):
        missing = partial(_shared, evaluated, part, share)
        ask_all(board, "question", missing, partial(ask, part), progress)


def harvest(evaluated: EvaluationFolder, progress: Progress) -> None:
    """Take the answers from the runs of an evaluation that are on this machine."""
    name = evaluated.evaluation.id
    # Both names begin with the time in UTC.
    for folder, place in placed_runs(name, since=name.partition("-")[0]):
        source = evaluated.source(folder.name)
        if source is None or source.doubts is None:
            source = _source_of(folder, place.cell)
        try:
            evaluated.add(place.cell, read_answers(folder / ANSWERS), source)
        except ArmloadError as error:
            progress.say(f"skipped: {error.message}")


def _source_of(folder: Path, part: int) -> AnswerSource:
    doubts = None
    with contextlib.suppress(ArmloadError):  # it has not ended
        findings = store.load(folder).verdict.findings or ()
        doubts = tuple(each.sentence for each in findings if each.name not in ABOUT_ANSWERS)
    return AnswerSource(
        run=folder.name, part=part, board=read_job(folder).board.name, doubts=doubts
    )


def _shared(evaluated: EvaluationFolder, part: int, share: tuple[int, int]) -> list[Question]:
    number, of = share
    mine = {question.id for question in evaluated.questions[number::of]}
    return [question for question in evaluated.missing(part) if question.id in mine]


def _engine(
    where: Session,
    prepared: PreparedEvaluation,
    part: int,
    settings: ScorerSettings,
    questions: Sequence[Question],
    note: Note,
) -> TimedScoring:
    evaluated, model = prepared.evaluated, prepared.models[part]
    parts = evaluated.evaluation.parts
    items = items_of(prepared.task, parts[part], questions)
    board = where.connection.board.name
    path = write_items(items, evaluated.folder / "items" / f"{part}-{board}.jsonl")
    note(part, evaluated.answers(part))
    return TimedScoring(
        settings.plan(items, path, model),
        where.binaries[SCORER],
        model,
        path,
        evaluation=evaluated.evaluation.id,
        note=partial(note, part),
        max_time_s=settings.max_time_s and settings.max_time_s / len(parts),
    )
