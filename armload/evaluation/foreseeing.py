"""How long the questions will take, before anything is copied to the board."""

from __future__ import annotations

from armload.boards.probe import Probe
from armload.core.progress import Progress
from armload.engines.prediction import Prediction
from armload.engines.scorer import Scoring
from armload.evaluation.way import one_continuation
from armload.runs.pipeline import Foresee, Session
from armload.runs.predicting import foresight_of

SAID_FROM_S = 60.0


def foresight(where: Session, engine: Scoring, max_tokens: int, progress: Progress) -> Foresee:
    """Return what predicts a run of the scorer, says how long it takes at most, or refuses it.

    Args:
        max_tokens: of an answer; 0 where choices are compared.
    """
    scoring = engine.plan
    foresee_memory = foresight_of(
        *(where, engine.model, one_continuation(scoring), engine.memory, progress)
    )

    def foresee(found: Probe) -> Prediction | None:
        prediction = foresee_memory(found)
        if prediction is not None:
            longest_s = _longest_s(prediction, scoring.items_count, scoring.parallel, max_tokens)
            if longest_s is not None and longest_s >= SAID_FROM_S:
                asked = f"{scoring.items_count} questions"
                progress.say(
                    f"{asked} of up to {max_tokens} tokens take {_words(longest_s)} if all answers "
                    "are that long."
                    if max_tokens
                    else f"{asked} take about {_words(longest_s)}."
                )
        return prediction if scoring.parallel == 1 and max_tokens else None

    return foresee


def _longest_s(prediction: Prediction, items: int, parallel: int, max_tokens: int) -> float | None:
    if prediction.token_s is None or prediction.ttft_s is None:
        return None
    load_s = prediction.load_s.value if prediction.load_s else 0.0
    prompt_s = max(0.0, prediction.ttft_s.value - load_s)
    # As where reading the weights decides; computing is not shared by the items of a pass.
    return items * (prompt_s + max_tokens * prediction.token_s.value / parallel)


def _words(seconds: float) -> str:
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
