"""Asking the questions on boards: how long it will take, and what has no answer yet."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from armload.analysis.output_doubts import Failed, OutputMissing
from armload.analysis.run import Run
from armload.core.errors import ArmloadError, BoardError
from armload.core.progress import Progress
from armload.core.values import counted, format_duration
from armload.engines.answers import Answer, read_answers
from armload.engines.scorer import ANSWERS, Scoring
from armload.engines.watched.asked import read_printed
from armload.evaluation.items import items_of, write_items
from armload.evaluation.preparing import PreparedEvaluation
from armload.evaluation.program import TimedProgram
from armload.evaluation.question import Question
from armload.evaluation.record import AnswerSource, EvaluationFolder
from armload.evaluation.scorer_run import TimedScoring, ask_all, next_point, runs_of
from armload.evaluation.scorer_settings import ScorerSettings
from armload.runs import store
from armload.runs.assemble import read_job
from armload.runs.reach import EngineBoard, Reach
from armload.runs.request import Request
from armload.runs.session import ReachedBoard


def say_duration(
    board: EngineBoard,
    asked: Sequence[tuple[Scoring, int]],
    max_time_s: float | None,
    progress: Progress,
) -> None:
    """Say how long all questions together take on a board, or on a group of boards, at most.

    Args:
        asked: of each part its run, and the most tokens of an answer; 0 where choices are compared.
    """
    if not asked:
        return
    count = sum(engine.plan.items_count for engine, _ in asked)
    questions, verb = counted(count, "question"), "takes" if count == 1 else "take"
    most_tokens = max(max_tokens for _, max_tokens in asked)
    longest = f"{questions} of up to {most_tokens} tokens" if most_tokens else questions
    try:
        times = [_longest(board, engine, max_tokens) for engine, max_tokens in asked]
    except ArmloadError as error:
        said = f"The time for {longest} cannot be estimated: {error.message}"
        if max_time_s is not None:
            said = f"To answer: {longest}."
    else:
        about = "at least" if any(time.is_bound for time in times) else "about"
        condition = " if all answers are that long" if most_tokens else ""
        said = (
            f"{longest} {verb} {about} {format_duration(sum(time.s for time in times))}{condition}."
        )
    limit = "" if max_time_s is None else f" --max-time stops after {format_duration(max_time_s)}."
    progress.say(said + limit)


class _Time(NamedTuple):
    s: float
    is_bound: bool  # by what the board can do at most: nothing was timed there


def _longest(board: EngineBoard, engine: Scoring, max_tokens: int) -> _Time:
    """Return the time of a part whose answers are as long as they may be.

    Raises:
        ArmloadError: nothing can be predicted, or the run will be refused.
    """
    scoring, where = engine.plan, board.where
    prediction = board.predict_before_run(engine)
    if prediction is None or prediction.token_s is None or prediction.ttft_s is None:
        for each in prediction.notes if prediction else ():
            if each.kind == "emulated, not timed":
                raise BoardError(each.sentence)
        why = (
            f"the file of board {where.board.name} does not state"
            if where.group is None
            else f"the files of the members of {where.board.name} do not all state"
        )
        raise BoardError(f"{why} the CPU's speed (facts: clusters with max_mhz).")
    load_s = prediction.load_s.value if prediction.load_s else 0.0
    prompt_s = max(0.0, prediction.ttft_s.value - load_s)
    # As where reading the weights decides; computing is not shared by the items of a pass.
    token_s = prediction.token_s.value / scoring.parallel
    time_s = load_s + scoring.items_count * (prompt_s + max_tokens * token_s)
    return _Time(time_s, is_bound=prediction.compute == "roofline")


ABOUT_ANSWERS: tuple[str, ...] = (Failed.name, OutputMissing.name)
"""Findings on how a run ended: what was answered until then is as good as any answer."""

Note = Callable[[int, Sequence[Answer]], str]
"""Given a part and some more of its answers, says in a few words how it stands."""


def evaluate_on(
    request: Request,
    prepared: PreparedEvaluation,
    settings: ScorerSettings,
    progress: Progress,
    *,
    share: tuple[int, int],
    note: Note,
    reach: Reach,
) -> None:
    """Say how long it takes, and ask on one board what is missing, part by part.

    A run that ends early is followed by another one for the rest, as long as each brings answers.

    Args:
        prepared: gets the answers; complete ones only.
        settings: threads, memory and time.
        share: of several boards, which one this is, and how many there are: each takes its own
            questions.
        note: is given each part's answers, those that are there already first.
        reach: how the board is reached.
    """
    evaluated = prepared.evaluated
    harvest(evaluated, progress)
    groups = prepared.loaded is None
    with reach.open(request, prepared.programs, progress, takes_groups=groups) as board:
        asked: list[tuple[Scoring, int]] = [
            (_scoring(board.where, prepared, number, settings, missing, note), part.max_tokens)
            for number, part in enumerate(evaluated.evaluation.parts)
            if prepared.loaded is None and (missing := _shared(evaluated, number, share))
        ]
        say_duration(board, asked, settings.max_time_s, progress)
        evaluate_there(board, prepared, settings, progress, new=request.new, share=share, note=note)


def evaluate_there(
    there: EngineBoard,
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
    evaluated, board = prepared.evaluated, there.where.board.name

    def ask(part: int, missing: Sequence[Question]) -> tuple[Run, bool]:
        engine = _engine(there.where, prepared, part, settings, missing, note)
        place = next_point(evaluated.evaluation.id, part, board)
        try:
            run = there.run(engine, new=new, place=place)
        finally:
            harvest(evaluated, progress)
        # With a limit, only that ends a run well before all are answered.
        return run, engine.max_time_s is not None and run.exit.kind == "done"

    for part in range(len(evaluated.evaluation.parts)):
        missing = partial(_shared, evaluated, part, share)
        ask_all(board, "question", missing, partial(ask, part), progress)


def harvest(evaluated: EvaluationFolder, progress: Progress) -> None:
    """Take the answers from the runs of an evaluation that are on this machine."""
    for folder, place in runs_of(evaluated.evaluation.id):
        source = evaluated.source(folder.name)
        if source is None or source.doubts is None:
            doubts = energy = None
            with contextlib.suppress(ArmloadError):  # it has not ended
                run = store.load(folder)
                findings = run.verdict.findings
                doubts = tuple(each.sentence for each in findings if each.name not in ABOUT_ANSWERS)
                energy = run.energy and run.energy.model_copy(update={"curve": ()})
            source = AnswerSource(
                run=folder.name,
                part=place.cell,
                board=read_job(folder).board.name,
                doubts=doubts,
                energy=energy,
            )
        try:
            evaluated.add(place.cell, _answers_in(evaluated, place.cell, folder), source)
        except ArmloadError as error:
            progress.say(f"skipped: {error.message}")


def _answers_in(evaluated: EvaluationFolder, part: int, folder: Path) -> Sequence[Answer]:
    if evaluated.evaluation.parts[part].program is None:
        return read_answers(folder / ANSWERS)
    return read_printed(read_job(folder), folder)


def _shared(evaluated: EvaluationFolder, part: int, share: tuple[int, int]) -> list[Question]:
    number, of = share
    mine = {question.id for question in evaluated.questions[number::of]}
    return [question for question in evaluated.missing(part) if question.id in mine]


def _engine(
    where: ReachedBoard,
    prepared: PreparedEvaluation,
    part: int,
    settings: ScorerSettings,
    questions: Sequence[Question],
    note: Note,
) -> TimedScoring | TimedProgram:
    if prepared.loaded is None:
        return _scoring(where, prepared, part, settings, questions, note)
    evaluated = prepared.evaluated
    note(part, evaluated.answers(part))
    return prepared.loaded.engine(
        *(prepared.task, evaluated.evaluation.parts[part], questions),
        evaluated.folder / "items" / f"{part}-{where.board.name}",
        evaluation=evaluated.evaluation.id,
        note=partial(note, part),
        max_time_s=settings.max_time_s and settings.max_time_s / len(evaluated.evaluation.parts),
    )


def _scoring(
    where: ReachedBoard,
    prepared: PreparedEvaluation,
    part: int,
    settings: ScorerSettings,
    questions: Sequence[Question],
    note: Note,
) -> TimedScoring:
    evaluated, model = prepared.evaluated, prepared.models[part]
    parts = evaluated.evaluation.parts
    generates = parts[part].max_tokens > 0
    items = items_of(prepared.task, parts[part], questions)
    board = where.board.name
    path = write_items(items, evaluated.folder / "items" / f"{part}-{board}.jsonl")
    note(part, evaluated.answers(part))
    seen = prepared.seen.get(parts[part].model_reference)
    return TimedScoring(
        settings.plan(items, path, model, seen),
        where.binaries[prepared.programs[0]],
        model,
        path,
        evaluation=evaluated.evaluation.id,
        note=partial(note, part),
        max_time_s=settings.max_time_s and settings.max_time_s / len(parts),
        keeps_forecast=settings.parallel == 1 and generates and seen is None,
        seen=seen,
    )
