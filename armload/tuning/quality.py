"""Whether the output with a setting is as good as is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from armload.analysis.sanity import departure
from armload.core.errors import (
    ArmloadError,
    BusyError,
    ConnectError,
    DataError,
    DiskError,
    UsageError,
)
from armload.core.values import format_bytes
from armload.tuning.record import Quality
from armload.tuning.settings import keeps_text, scored
from armload.tuning.space import Key, Setting
from armload.tuning.trial import Outcome, TrialAttempt


@dataclass(frozen=True, kw_only=True)
class Judged:
    """An attempt with what is known of its output.

    Attributes:
        outcome: that of the attempt, or a violation.
    """

    outcome: Outcome
    quality: Quality


class Check(Protocol):
    """A constraint that takes long to check."""

    def __call__(self, setting: Setting, text: str | None) -> tuple[Quality, str]:
        """Return what was found, and why the setting breaks the constraint; empty if it does not.

        Args:
            text: that the defaults wrote; none where there is none.
        """


class Judge:
    """Holds every attempt against the constraints, and against the text of the defaults.

    Args:
        defaults: whose output is the reference.
        most_rss_bytes: peak resident memory that a setting may take; none for no limit.
        checks: that a setting must pass before it wins, if it changes distributions of tokens.
    """

    def __init__(
        self, defaults: Setting, *, most_rss_bytes: int | None, checks: Sequence[Check]
    ) -> None:
        self._defaults = defaults
        self._most_rss_bytes = most_rss_bytes
        self._checks = tuple(checks)
        self._text: str | None = None
        self._known: dict[Key, tuple[Quality, str]] = {}

    def take_reference(self, setting: Setting, text: str | None) -> None:
        """Take in what a setting wrote: the longest text of the defaults is the reference."""
        if setting.key == self._defaults.key and text and len(text) > len(self._text or ""):
            self._text = text

    def judged(self, setting: Setting, attempt: TrialAttempt) -> Judged:
        """Say what the attempt shows of memory and text, and what is known from checks."""
        found = self._seen(setting, attempt)
        is_known = self._key(setting) in self._known
        if found.outcome.status == "measured" and is_known:
            return self.checked(setting, found)
        return found

    def needs_check(self, setting: Setting) -> bool:
        """Say whether the setting may not win before it is checked, which takes long."""
        key = self._key(setting)
        return bool(self._checks) and bool(key) and key not in self._known

    def checked(self, setting: Setting, judged: Judged) -> Judged:
        """Check a setting, once for all settings that compute alike; the defaults need none."""
        key = self._key(setting)
        if not key:
            return judged
        if key not in self._known:
            self._known[key] = self._found(setting)
        quality, reason = self._known[key]
        return Judged(
            outcome=_violating(judged.outcome, reason) if reason else judged.outcome,
            quality=quality.model_copy(update={"same_text": judged.quality.same_text}),
        )

    def recall(self, setting: Setting, judged: Judged) -> None:
        """Take in what an earlier command has found out of a setting by its checks."""
        quality = judged.quality
        if quality.kl_mean is not None or quality.accuracy is not None:
            self._known[self._key(setting)] = (quality, judged.outcome.reason)

    def _seen(self, setting: Setting, attempt: TrialAttempt) -> Judged:
        outcome = attempt.outcome
        if outcome.status != "measured":
            return Judged(outcome=outcome, quality=Quality())
        most = self._most_rss_bytes
        if most is not None and (attempt.max_rss_bytes or 0) > most:
            took = format_bytes(attempt.max_rss_bytes or 0)
            reason = f"It took {took} of memory, more than {format_bytes(most)}."
            return Judged(outcome=_violating(outcome, reason), quality=Quality())
        if attempt.text is None or self._text is None:
            return Judged(outcome=outcome, quality=Quality())
        found = departure(attempt.text, self._text, name="the defaults")
        quality = Quality(same_text=found.kind == "same")
        if found.kind != "same" and keeps_text(setting, self._defaults):
            outcome = _violating(outcome, found.sentence)
        return Judged(outcome=outcome, quality=quality)

    def _found(self, setting: Setting) -> tuple[Quality, str]:
        quality = Quality()
        for check in self._checks:
            try:
                found, reason = check(setting, self._text)
            except (ConnectError, BusyError, UsageError, DataError, DiskError):
                raise  # of no setting
            except ArmloadError as error:
                return quality, f"Its output could not be checked: {error.message}"
            quality = quality.model_copy(update=found.model_dump(exclude_none=True))
            if reason:
                return quality, reason
        return quality, ""

    def _key(self, setting: Setting) -> Key:
        """The same for settings that compute alike; empty for what computes as the defaults do."""
        return Setting(choices=scored(setting, self._defaults)).key


def _violating(outcome: Outcome, reason: str) -> Outcome:
    return outcome.model_copy(update={"status": "violates", "reason": reason})
