"""Searches for the best configuration as results, on one board or several."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel

from armload.core.values import ValueList, counted
from armload.report.on_boards import BoardsResult
from armload.report.result import BoardOutcome, Part, Result, labelled
from armload.report.tuning.table import settings_view, tunings_view
from armload.report.tuning.view import TuningView
from armload.tuning.estimating import SearchState
from armload.tuning.outcome_words import cost_words, violation_words
from armload.tuning.record import TuningDocument, TuningEntry, TuningFolder
from armload.tuning.request import TuningRequest
from armload.tuning.settings import words_of
from armload.tuning.space import Setting

if TYPE_CHECKING:
    from armload.report.pages import Page


@dataclass(frozen=True, kw_only=True)
class TuningResult(Result):
    """A search as far as it came; one that has ended has a page."""

    tuned: TuningFolder

    @cached_property
    def told(self) -> TuningView:
        return TuningView.of(self.tuned)

    @property
    def home(self) -> Path | None:
        return self.tuned.folder if self.told.result else None

    def page(self, folder: Path) -> Page:
        from armload.report.tuning.page import tuning_page

        return tuning_page(self.told, folder)

    def document(self) -> BaseModel:
        return self.tuned.document()

    def view(self) -> Iterator[Part]:
        tuned, result = self.tuned, self.told.result
        if self.told.steps:
            yield settings_view(self.told)
            yield ""
        if result is None:
            trials = counted(len(tuned.entries), "trial")
            yield f"{tuned.tuning.id} is not finished: {trials} so far."
            return
        yield result.sentence
        if result.violation is not None:
            yield violation_words(tuned.tuning, result.violation)
        places = [("plan", result.plan), ("tuning", tuned.folder)]
        yield from labelled(8, [*places, *self.files.items()])


@dataclass(frozen=True, kw_only=True)
class TunedOnBoards(BoardsResult[TuningFolder]):
    """Searches that ended now."""

    of_several = ValueList[BoardOutcome[TuningDocument]]

    @cached_property
    def _results(self) -> list[TuningResult]:
        return [TuningResult(tuned=each) for each in self.done.values()]

    @cached_property
    def files(self) -> Mapping[str, Path]:
        return {
            board: path
            for board, each in zip(self.done, self._results, strict=True)
            for path in each.files.values()
        }

    def document_of(self, done: TuningFolder) -> BaseModel:
        return done.document()

    def view(self) -> Iterator[Part]:
        if len(self.outcomes) == 1:
            yield from self._results[0].view()
        elif self._results:
            yield tunings_view([each.told for each in self._results])
            yield from labelled(8, (("page", path) for path in self.files.values()))


def trial_line(goal: TuningRequest, entry: TuningEntry, state: SearchState) -> str:
    """Say how a trial ended, and which figure is the best so far."""
    outcome, setting = entry.outcome, entry.trial.setting
    words = words_of(setting, Setting(choices=dict.fromkeys(setting.choices)), {})
    figure = cost_words(goal.objective, outcome.cost) if outcome.cost else ""
    ended = "" if outcome.status == "measured" else f"{outcome.status}: {outcome.reason}"
    best = f"best: {cost_words(goal.objective, state.leader.cost)}" if state.leader else ""
    said = "; ".join(each for each in (figure, ended, best) if each)
    return f"Trial {entry.trial.number + 1}, {words}: {said}"
