"""The checks of a setting that take long: divergence of its distributions, and right answers."""

from __future__ import annotations

from collections.abc import Sequence

from armload.analysis.accuracy import wilson
from armload.core.errors import UsageError
from armload.core.progress import Progress
from armload.evaluation.evaluating import evaluate_there
from armload.evaluation.logits.agreement import agreement
from armload.evaluation.logits.computing import logits_items
from armload.evaluation.logits.rows import Logits, logits_of_run
from armload.evaluation.preparing import EvaluationRequest, prepare
from armload.evaluation.results import points_of
from armload.evaluation.scorer_run import answer_items_there
from armload.evaluation.scorer_settings import ScorerSettings
from armload.models.model import Model
from armload.runs.reach import EngineBoard
from armload.tuning.record import Quality
from armload.tuning.settings import scored
from armload.tuning.space import Setting
from armload.tuning.wanted import LeastAccuracy

_FIELDS = {
    "kv_type": "kv_type",
    "flash_attention": "flash_attention",
    "micro_batch": "micro_batch_tokens",
}
"""Options, and what they are called in a ``ScorerSettings``."""


class DivergenceCheck:
    """How far the distributions of tokens lie from those of the defaults.

    Args:
        board: with the scorer.
        prompts: over which it is measured; empty for the text that the defaults write.
        most: mean Kullback-Leibler divergence, in nats.
    """

    def __init__(
        self,
        board: EngineBoard,
        model: Model,
        defaults: Setting,
        prompts: Sequence[str],
        most: float,
        progress: Progress,
    ) -> None:
        self._board = board
        self._model = model
        self._defaults = defaults
        self._prompts = tuple(prompts)
        self._most = most
        self._progress = progress
        self._reference: Logits | None = None

    def __call__(self, setting: Setting, text: str | None) -> tuple[Quality, str]:
        """Compute logits with both, and compare them."""
        prompts = self._prompts or ((text,) if text else ())
        if not prompts:
            raise UsageError(
                "There is no text to compare distributions on.", "Give some: --kld-prompts FILE."
            )
        if self._reference is None:
            self._reference = self._logits(self._defaults, prompts)
        found = agreement(self._logits(setting, prompts), self._reference)
        quality = Quality(kl_mean=found.kl_mean)
        if found.kl_mean <= self._most:
            return quality, ""
        return quality, (
            f"The KL divergence from the defaults is {found.kl_mean:.3g}, more than {self._most:g}."
        )

    def _logits(self, setting: Setting, prompts: Sequence[str]) -> Logits:
        items = logits_items(self._model, prompts, self._progress)
        settings = _settings(setting, self._defaults)
        board, progress = self._board, self._progress
        return logits_of_run(
            answer_items_there(board, self._model, items, settings, progress, new=False)
        )


class CorrectAnswers:
    """How often the model is right.

    Args:
        board: with the scorer.
        model_name: as ``eval`` takes it.
    """

    def __init__(
        self,
        board: EngineBoard,
        model_name: str,
        defaults: Setting,
        wanted: LeastAccuracy,
        progress: Progress,
    ) -> None:
        self._board = board
        self._model_name = model_name
        self._defaults = defaults
        self._wanted = wanted
        self._progress = progress

    def __call__(self, setting: Setting, text: str | None) -> tuple[Quality, str]:
        """Ask the questions, and grade the answers."""
        del text
        wanted, settings = self._wanted, _settings(setting, self._defaults)
        asked = EvaluationRequest(
            boards=(self._board.where.main_board.name,),
            models=(self._model_name,),
            task=wanted.task,
            data=wanted.data,
            limit=wanted.questions,
            computed=(settings.model_dump_json(),),
        )
        prepared = prepare(asked, self._progress, new=False)
        with prepared.evaluated.locked(self._progress):
            evaluate_there(
                *(self._board, prepared, settings, self._progress),
                new=False,
                note=lambda *_: "",
            )
        prepared.evaluated.note_shown()
        accuracy = points_of(prepared.evaluated)[-1].accuracy
        if accuracy is None:
            return Quality(), f"No question of {wanted.task} was answered."
        low = accuracy.interval.low
        quality = Quality(accuracy=accuracy.share, accuracy_low=low, questions=accuracy.questions)
        if low >= wanted.share:
            return quality, ""
        return quality, (
            f"{accuracy.correct} of {accuracy.questions} answers to {wanted.task} are correct: "
            f"the 95% CI begins at {low:.1%}, below the required {wanted.share:.1%}."
        )


def require_reachable(wanted: LeastAccuracy) -> None:
    """Refuse a share that so few questions cannot show."""
    reached = wilson(wanted.questions, wanted.questions).low
    if reached >= wanted.share:
        return
    enough = wanted.questions
    while wilson(enough, enough).low < wanted.share:
        enough += 1
    raise UsageError(
        f"--min-accuracy {wanted.share:g}:{wanted.task}:{wanted.questions}: even if all "
        f"{wanted.questions} answers are correct, the 95% CI begins at "
        f"{reached:.3f}.",
        f"Use {enough} questions or more, or a smaller share.",
    )


def _settings(setting: Setting, defaults: Setting) -> ScorerSettings:
    choices = scored(setting, defaults)
    return ScorerSettings.model_validate(
        {_FIELDS[name]: choice for name, choice in choices.items()}
    )
