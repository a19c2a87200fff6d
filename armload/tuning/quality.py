"""Whether the output with a setting is as good as is asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from armload.analysis.sanity import departure, departure_line
from armload.core.errors import ArmloadError, BusyError, ConnectError, UsageError
from armload.core.progress import Progress
from armload.core.values import format_bytes
from armload.engines.answers import Answer
from armload.evaluation.answering import answer_items_there
from armload.evaluation.evaluating import evaluate_there
from armload.evaluation.logits.agreement import agreement
from armload.evaluation.logits.computing import logits_items
from armload.evaluation.logits.rows import Logits, logits_of_run
from armload.evaluation.preparing import Asked, prepare
from armload.evaluation.results import points_of
from armload.evaluation.way import Way
from armload.models.model import Model
from armload.runs.pipeline import Session
from armload.tuning.measuring import Attempt
from armload.tuning.record import Quality
from armload.tuning.settings import keeps_text, scored
from armload.tuning.space import Choice, Setting
from armload.tuning.trial import Outcome
from armload.tuning.wanted import Constraints, LeastAccuracy

_WAY = {
    "kv_type": "kv_type",
    "flash_attention": "flash_attention",
    "micro_batch": "micro_batch_tokens",
}
"""Options, and what they are called in a ``Way``."""


@dataclass(frozen=True, kw_only=True)
class Judged:
    """An attempt with what is known of its output.

    Attributes:
        outcome: that of the attempt, or a violation.
    """

    outcome: Outcome
    quality: Quality


class Judge:
    """Holds every attempt against the constraints, and against the text of the defaults.

    Args:
        where: with the scorer, where there are constraints that need it.
        model_name: as ``eval`` takes it.
        defaults: whose output is the reference.
        prompts: whose distributions are compared; empty for the text of the defaults.
    """

    def __init__(
        self,
        where: Session,
        model: Model,
        model_name: str,
        constraints: Constraints,
        defaults: Setting,
        prompts: Sequence[str],
        progress: Progress,
    ) -> None:
        self._where = where
        self._model = model
        self._model_name = model_name
        self._constraints = constraints
        self._defaults = defaults
        self._prompts = tuple(prompts)
        self._progress = progress
        self._text: str | None = None
        self._reference: Logits | None = None
        self._checked: dict[tuple[tuple[str, Choice], ...], Judged] = {}

    def take_reference(self, setting: Setting, text: str | None) -> None:
        """Take in what the defaults wrote; the longest text is the reference."""
        if setting.key == self._defaults.key and text and len(text) > len(self._text or ""):
            self._text = text

    def judged(self, setting: Setting, attempt: Attempt) -> Judged:
        """Say what the attempt alone shows: of memory and text."""
        outcome = attempt.outcome
        if outcome.status != "measured":
            return Judged(outcome=outcome, quality=Quality())
        most = self._constraints.max_rss_bytes
        if most is not None and (attempt.max_rss_bytes or 0) > most:
            took = format_bytes(attempt.max_rss_bytes or 0)
            reason = f"it took {took} of memory, more than {format_bytes(most)}"
            return Judged(outcome=_violating(outcome, reason), quality=Quality())
        if attempt.text is None or self._text is None:
            return Judged(outcome=outcome, quality=Quality())
        found = departure(attempt.text, self._text, name="the defaults")
        quality = Quality(same_text=found.kind == "same")
        if found.kind == "same" or not keeps_text(setting, self._defaults):
            return Judged(outcome=outcome, quality=quality)
        return Judged(outcome=_violating(outcome, departure_line(found)), quality=quality)

    def needs_check(self, setting: Setting) -> bool:
        """Say whether the setting may not win before it is checked, which takes long."""
        return bool(self._limits()) and bool(self._key(setting)) and not self._is_checked(setting)

    def checked(self, setting: Setting, judged: Judged) -> Judged:
        """Score texts and ask questions with a setting, once for all that compute alike.

        Raises:
            ConnectError, BusyError: the board does not answer any more, or is in use.
            KeyboardInterrupt: what was answered is kept.
        """
        key = self._key(setting)
        if key not in self._checked:
            quality, reasons = judged.quality, []
            for limit in self._limits():
                try:
                    found, reason = limit(setting)
                except (ConnectError, BusyError):
                    raise
                except ArmloadError as error:
                    found, reason = Quality(), f"its output could not be checked: {error.message}"
                known = found.model_dump(exclude_none=True)
                quality = quality.model_copy(update=known)
                if reason:
                    reasons.append(reason)
                    break
            outcome = judged.outcome
            if reasons:
                outcome = _violating(outcome, reasons[0])
            self._checked[key] = Judged(outcome=outcome, quality=quality)
        known_one = self._checked[key]
        reason = known_one.outcome.reason if known_one.outcome.status == "violates" else ""
        return Judged(
            outcome=_violating(judged.outcome, reason) if reason else judged.outcome,
            quality=known_one.quality.model_copy(update={"same_text": judged.quality.same_text}),
        )

    def recall(self, setting: Setting, judged: Judged) -> None:
        """Take in what an earlier command has found out of a setting."""
        quality = judged.quality
        if quality.kl_mean is not None or quality.accuracy is not None:
            self._checked[self._key(setting)] = judged

    def _is_checked(self, setting: Setting) -> bool:
        return self._key(setting) in self._checked

    def _key(self, setting: Setting) -> tuple[tuple[str, Choice], ...]:
        return tuple(sorted(scored(setting, self._defaults).items()))

    def _limits(self) -> list[Callable[[Setting], tuple[Quality, str]]]:
        limits: list[Callable[[Setting], tuple[Quality, str]]] = []
        if self._constraints.max_kld is not None:
            limits.append(self._divergence)
        if self._constraints.min_accuracy is not None:
            limits.append(self._accuracy)
        return limits

    def _divergence(self, setting: Setting) -> tuple[Quality, str]:
        most = self._constraints.max_kld or 0.0
        if self._reference is None:
            self._reference = self._logits(self._defaults)
        found = agreement(self._logits(setting), self._reference)
        quality = Quality(kl_mean=found.kl_mean)
        if found.kl_mean <= most:
            return quality, ""
        return quality, f"its KL divergence from the defaults is {found.kl_mean:.3g}, above {most}"

    def _logits(self, setting: Setting) -> Logits:
        prompts = self._prompts or ((self._text,) if self._text else ())
        if not prompts:
            raise UsageError(
                "There is no text to compare distributions on.", "Give some: --kld-prompts FILE."
            )
        items = logits_items(self._model, prompts, self._progress)
        way = self._way(setting)
        where, progress = self._where, self._progress
        folder = answer_items_there(where, self._model, items, way, progress, new=False)
        return logits_of_run(folder)

    def _accuracy(self, setting: Setting) -> tuple[Quality, str]:
        wanted = self._constraints.min_accuracy
        if wanted is None:
            return Quality(), ""
        way = self._way(setting)
        asked = Asked(
            boards=(self._where.connection.board.name,),
            models=(self._model_name,),
            task=wanted.task,
            limit=wanted.questions,
            computed=(way.model_dump_json(),),
        )
        begun = prepare(asked, self._progress, new=False)
        with begun.evaluated.locked(self._progress):
            evaluate_there(
                *(self._where, begun.evaluated, begun.task, begun.models, way, self._progress),
                new=False,
                note=_no_note,
            )
        begun.evaluated.note_shown()
        accuracy = points_of(begun.evaluated)[-1].accuracy
        if accuracy is None:
            return Quality(), f"none of {wanted.questions} questions of {wanted.task} was answered"
        low = accuracy.interval.low
        quality = Quality(accuracy=accuracy.share, accuracy_low=low, questions=accuracy.questions)
        if low >= wanted.share:
            return quality, ""
        return quality, (
            f"it is right on {accuracy.correct} of {accuracy.questions} questions of "
            f"{wanted.task}: with 95 % confidence {low:.1%} or more, less than {wanted.share:.1%}"
        )

    def _way(self, setting: Setting) -> Way:
        choices = scored(setting, self._defaults)
        return Way.model_validate({_WAY[name]: choice for name, choice in choices.items()})


def require_reachable(wanted: LeastAccuracy, best: Callable[[int, int], float]) -> None:
    """Refuse a share that so few questions cannot show.

    Args:
        best: the lower bound of the share, by right answers and questions.

    Raises:
        UsageError: even if all are answered right, the bound lies below; says how many it takes.
    """
    if best(wanted.questions, wanted.questions) >= wanted.share:
        return
    enough = wanted.questions
    while best(enough, enough) < wanted.share:
        enough *= 2
    lowest, highest = wanted.questions, enough
    while highest - lowest > 1:
        middle = (lowest + highest) // 2
        if best(middle, middle) < wanted.share:
            lowest = middle
        else:
            highest = middle
    raise UsageError(
        f"--min-accuracy {wanted.share:g}:{wanted.task}:{wanted.questions}: even if all "
        f"{wanted.questions} questions are answered right, 95 % confidence is reached for "
        f"{best(wanted.questions, wanted.questions):.3f} only.",
        f"Ask {highest} questions or more, or for a smaller share.",
    )


def _violating(outcome: Outcome, reason: str) -> Outcome:
    return outcome.model_copy(update={"status": "violates", "reason": reason})


def _no_note(part: int, answers: Sequence[Answer]) -> str:
    del part, answers
    return ""
