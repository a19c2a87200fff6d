"""How long the questions will take, before anything is copied to the board."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from armload.boards.probe import Probe
from armload.core.errors import ArmloadError
from armload.core.progress import Progress, Silent
from armload.core.values import counted
from armload.engines.prediction import Prediction
from armload.engines.scorer import Scoring
from armload.evaluation.scorer_settings import one_continuation
from armload.runs.predicting import foresight_of
from armload.runs.session import Foresee, Session


def foresight(where: Session, engine: Scoring, max_tokens: int, progress: Progress) -> Foresee:
    """Return what predicts a run of the scorer, or refuses it.

    Args:
        max_tokens: of an answer; 0 where choices are compared.
    """
    scoring = engine.plan
    foresee_memory = foresight_of(
        *(where, engine.model, one_continuation(scoring), engine.memory, progress)
    )

    def foresee(found: Probe) -> Prediction | None:
        prediction = foresee_memory(found)
        return prediction if scoring.parallel == 1 and max_tokens else None

    return foresee


def say_duration(
    where: Session,
    asked: Sequence[tuple[Scoring, int]],
    max_time_s: float | None,
    progress: Progress,
) -> None:
    """Say how long all questions together take on a board at most.

    Args:
        asked: of each part its run, and the most tokens of an answer; 0 where choices are compared.
    """
    if not asked:
        return
    questions = counted(sum(engine.plan.items_count for engine, _ in asked), "question")
    most_tokens = max(max_tokens for _, max_tokens in asked)
    times = [_longest(where, engine, max_tokens) for engine, max_tokens in asked]
    known = [time for time in times if time is not None]
    longest = f"{questions} of up to {most_tokens} tokens" if most_tokens else questions
    condition = " if all answers are that long" if most_tokens else ""
    if len(known) == len(times):
        about = "at least" if any(time.is_bound for time in known) else "about"
        said = f"{longest} take {about} {_words(sum(time.s for time in known))}{condition}."
    elif max_time_s is None:
        board = where.connection.board.name
        said = (
            f"How long {longest} take cannot be estimated: the file of {board} does not say how "
            "fast it computes (facts: clusters with max_mhz)."
        )
    else:
        said = f"To answer: {longest}."
    limit = "" if max_time_s is None else f" --max-time stops after {_words(max_time_s)}."
    progress.say(said + limit)


class _Time(NamedTuple):
    s: float
    is_bound: bool  # by what the board can do at most: nothing was timed there


def _longest(where: Session, engine: Scoring, max_tokens: int) -> _Time | None:
    scoring = engine.plan
    foresee = foresight_of(
        *(where, engine.model, one_continuation(scoring), engine.memory, Silent())
    )
    try:
        prediction = foresee(where.found)
    except ArmloadError:  # its run will be refused, with the reason
        return None
    if prediction is None or prediction.token_s is None or prediction.ttft_s is None:
        return None
    load_s = prediction.load_s.value if prediction.load_s else 0.0
    prompt_s = max(0.0, prediction.ttft_s.value - load_s)
    # As where reading the weights decides; computing is not shared by the items of a pass.
    token_s = prediction.token_s.value / scoring.parallel
    time_s = load_s + scoring.items_count * (prompt_s + max_tokens * token_s)
    return _Time(time_s, is_bound=prediction.compute == "roofline")


def _words(seconds: float) -> str:
    if seconds < 60:
        return f"{max(1, round(seconds))} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
