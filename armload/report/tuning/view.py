"""A search as it is shown: every configuration that was tried, and who led after which trial."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from armload.tuning.estimating import ChoiceEstimate, Tried, estimates_of, leader_of
from armload.tuning.record import Quality, SearchResult, Tuning, TuningEntry, TuningFolder
from armload.tuning.settings import words_of
from armload.tuning.space import Key, Setting
from armload.tuning.trial import Status
from armload.tuning.wanted import AIMS


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A setting that was tried.

    Attributes:
        words: what is not as in the defaults.
        status: the worst of its trials.
        reason: why it cannot win; empty where it may.
        estimate: of its cost; none where it was never measured.
        max_rss_bytes: the most of its trials.
        quality: all that was found out.
    """

    setting: Setting
    words: str
    status: Status
    reason: str
    estimate: ChoiceEstimate | None
    max_rss_bytes: int | None
    quality: Quality


@dataclass(frozen=True, kw_only=True)
class SearchStep:
    """A trial, and who led after it.

    Attributes:
        leader: none while no setting may win.
    """

    entry: TuningEntry
    leader: ChoiceEstimate | None


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How costs are shown: as rates, where people speak of those.

    Attributes:
        name: of the axis, with the unit.
        unit: of a figure.
        heading: of a column.
        merit: what a low cost is a lot of.
        is_rate: more is better.
    """

    name: str
    unit: str
    heading: str
    merit: str
    is_rate: bool

    def value(self, cost: float) -> float:
        """Return what is shown for a cost."""
        return 1 / cost if self.is_rate else cost


@dataclass(frozen=True, kw_only=True)
class TuningView:
    """A search so far.

    Attributes:
        candidates: every setting that was tried, in that order.
        steps: every trial.
        result: none for a search that has not ended.
    """

    tuning: Tuning
    candidates: tuple[Candidate, ...]
    steps: tuple[SearchStep, ...]
    result: SearchResult | None

    @classmethod
    def of(cls, tuned: TuningFolder) -> TuningView:
        """Return a search that is ready to be shown.

        Raises:
            DataError, DiskError: as for ``TuningFolder.result``.
        """
        tried: dict[Key, Tried] = {}
        entries: dict[Key, list[TuningEntry]] = {}
        known: list[ChoiceEstimate] = []
        steps = []
        for entry in tuned.entries:
            setting = entry.trial.setting
            tried.setdefault(setting.key, Tried(setting=setting, order=len(tried)))
            tried[setting.key].add(entry.trial, entry.outcome)
            entries.setdefault(setting.key, []).append(entry)
            known = estimates_of(tried.values())
            able = [each for each in known if tried[each.setting.key].may_win]
            steps.append(SearchStep(entry=entry, leader=leader_of(able)))
        estimates = {each.setting.key: each for each in known}
        defaults = tuned.tuning.space.defaults
        return cls(
            tuning=tuned.tuning,
            candidates=tuple(
                _candidate(each, entries[key], estimates.get(each.setting.key), defaults)
                for key, each in tried.items()
            ),
            steps=tuple(steps),
            result=tuned.result(),
        )

    @property
    def scale(self) -> Scale:
        """How its costs are shown."""
        aim = AIMS[self.tuning.objective]
        if aim.rate_unit:
            name = f"speed ({aim.rate_unit})"
            return Scale(
                name=name, unit=aim.rate_unit, heading="speed", merit=aim.merit, is_rate=True
            )
        heading = "energy" if self.tuning.objective == "energy" else "time"
        name = f"{aim.cost} ({aim.unit})"
        return Scale(name=name, unit=aim.unit, heading=heading, merit=aim.merit, is_rate=False)

    @property
    def leader(self) -> ChoiceEstimate | None:
        """Who leads."""
        return self.steps[-1].leader if self.steps else None

    @property
    def able(self) -> list[Candidate]:
        """The settings that may win and were measured."""
        return [each for each in self.candidates if each.status == "measured" and each.estimate]

    def candidate(self, setting: Setting) -> Candidate | None:
        """Return what is known of a setting; none where it was not tried."""
        return next((each for each in self.candidates if each.setting.key == setting.key), None)


def _candidate(
    tried: Tried, entries: Sequence[TuningEntry], estimate: ChoiceEstimate | None, defaults: Setting
) -> Candidate:
    status: Status = "measured"
    if not tried.may_win:
        status = "failed" if tried.failed else "violates"
    found: dict[str, object] = {}
    for entry in entries:
        found |= entry.quality.model_dump(exclude_none=True)
    memory = [entry.max_rss_bytes for entry in entries if entry.max_rss_bytes is not None]
    return Candidate(
        setting=tried.setting,
        words=words_of(tried.setting, defaults, {}),
        status=status,
        reason=tried.failed or tried.violates,
        estimate=estimate,
        max_rss_bytes=max(memory, default=None),
        quality=Quality.model_validate(found),
    )
