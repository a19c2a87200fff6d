"""A search that is under way: trial after trial, until its leader is confirmed."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Mapping
from statistics import median

from armload.analysis.statistics import Interval, interval_of_runs
from armload.core.errors import ArmloadError, RunError
from armload.core.progress import Progress
from armload.core.values import counted
from armload.core.workspace import runs_folder
from armload.engines.job import SweepPoint
from armload.runs import store
from armload.tuning.confirming import Compared, TimeLimit, UnconfirmedError, confirm
from armload.tuning.estimating import ChoiceEstimate, Ended, SearchState
from armload.tuning.outcome_words import cost_words, sentence_of
from armload.tuning.quality import Judge, Judged
from armload.tuning.record import Confirmation, Quality, SearchResult, TuningEntry, TuningFolder
from armload.tuning.search import Search
from armload.tuning.settings import words_of
from armload.tuning.space import Key, Setting
from armload.tuning.trial import Measurer, Outcome, Trial
from armload.tuning.wanted import AIMS

Report = Callable[[TuningEntry, SearchState], None]
"""Is called with every trial, and how the search stands after it."""

_WHY: Mapping[Ended, str] = {
    "separated": "No other configuration can be more than 2% {better}.",
    "equal": "The best configurations have equal {merit} within noise.",
    "all tried": "All configurations were tried.",
    "trials used": "--max-trials was reached.",
    "nothing works": "Every configuration failed.",
}
_TIME_IS_UP = "--max-time was reached."


class Searching:
    """Asks for trials, measures them, and notes each.

    Args:
        tuned: gets the trials; those that it has are not repeated.
        search: that has not been told anything yet.
        max_time_s: of the search, with the comparison as far as half of it lasts; none for no
            limit.
        core_sets: what sets of cores are called.
        report: called for every trial.
    """

    def __init__(
        self,
        tuned: TuningFolder,
        measurer: Measurer,
        judge: Judge,
        search: Search,
        progress: Progress,
        *,
        max_time_s: float | None,
        core_sets: Mapping[str, str],
        report: Report,
    ) -> None:
        self._tuned = tuned
        self._measurer = measurer
        self._judge = judge
        self._search = search
        self._progress = progress
        self._time_limit = TimeLimit(max_time_s, tuned)
        self._core_sets = core_sets
        self._report = report
        self._defaults = tuned.tuning.space.defaults
        self._cells: dict[Key, int] = {}
        self._has_longest_reference = False

    def run(self) -> SearchResult:
        """Search to the end, and return how it ended.

        Raises:
            RunError: no setting works, or the defaults fail in the comparison at the end.
            ConnectError, BusyError: the board stayed away, or is in use; repeating the command
                resumes from there.
            KeyboardInterrupt: likewise.
        """
        for entry in self._tuned.entries:
            self._recall(entry)
        while True:
            ended = self._to_its_end()
            state = self._search.state
            leader = self._candidate(state)
            if leader is None:
                raise self._nothing_works()
            if not self._passes(leader):
                continue
            confirmation = None
            if leader.setting.key != self._defaults.key and self._default_cost() is not None:
                try:
                    confirmation = self._confirmed(leader.setting)
                except UnconfirmedError as error:
                    self._note(self._next_trial(leader), error.outcome, Quality(), 0.0)
                    continue
            return self._result(leader, state, confirmation, ended)

    def _candidate(self, state: SearchState) -> ChoiceEstimate | None:
        """Return what is to be compared with the defaults: the leader, if that is another one."""
        leader = state.leader
        if leader is None or leader.setting.key != self._defaults.key:
            return leader
        # Where a limit ends the search, the others' trials may have been too short to lead.
        faster = [each for each in state.rivals if each.cost < leader.cost]
        return min(faster, key=lambda each: each.cost, default=leader)

    def _to_its_end(self) -> str:
        label = f"Tuning on {self._tuned.tuning.board}"
        with self._progress.step(label, unit="trials") as step:
            while (trial := self._search.ask()) is not None:
                step.update(len(self._tuned.entries))
                if not self._time_limit.allows(trial):
                    return _TIME_IS_UP
                self._try(trial)
        aim = AIMS[self._tuned.tuning.objective]
        why = _WHY[self._search.state.ended or "all tried"]
        return why.format(better=aim.better, merit=aim.merit)

    def _try(self, trial: Trial) -> None:
        began_s = time.monotonic()
        place = self._place(trial.setting, trial.number)
        attempt = self._measurer.measure(trial.setting, trial.rung, place)
        self._take_reference(trial, attempt.text)
        judged = self._judge.judged(trial.setting, attempt)
        if self._is_about_to_win(trial, judged.outcome) and self._judge.needs_check(trial.setting):
            self._take_longest_reference()
            judged = self._judge.checked(trial.setting, judged)
        took_s = time.monotonic() - began_s
        self._note(trial, judged.outcome, judged.quality, took_s, rss_bytes=attempt.max_rss_bytes)

    def _take_longest_reference(self) -> None:
        """Let the defaults write as much as any setting does, for the checks to compare with."""
        if self._has_longest_reference:
            return
        trials = len(self._tuned.entries)
        place = SweepPoint(sweep=f"{self._tuned.tuning.id}-reference", cell=0, round=trials)
        attempt = self._measurer.measure(self._defaults, self._measurer.rungs - 1, place)
        self._judge.take_reference(self._defaults, attempt.text)
        self._has_longest_reference = True

    def _take_reference(self, trial: Trial, text: str | None) -> None:
        self._judge.take_reference(trial.setting, text)
        if trial.setting.key == self._defaults.key and trial.rung == self._measurer.rungs - 1:
            self._has_longest_reference = True

    def _is_about_to_win(self, trial: Trial, outcome: Outcome) -> bool:
        if outcome.status != "measured" or trial.rung < self._measurer.rungs - 1:
            return False
        leader = self._search.state.leader
        return leader is None or (outcome.cost or 0.0) < leader.cost

    def _passes(self, leader: ChoiceEstimate) -> bool:
        """Check a leader that came so far without: its trials were short, or it was no leader."""
        began_s = time.monotonic()
        if self._judge.needs_check(leader.setting):
            self._take_longest_reference()
        measured = Outcome(status="measured", cost=leader.cost)
        judged = self._judge.checked(leader.setting, Judged(outcome=measured, quality=Quality()))
        if judged.outcome.status == "measured":
            if judged.quality != Quality():
                self._tuned.learn(leader.setting, judged.quality)
            return True
        took_s = time.monotonic() - began_s
        self._note(self._next_trial(leader), judged.outcome, judged.quality, took_s)
        return False

    def _confirmed(self, leader: Setting) -> Confirmation:
        tuning = self._tuned.tuning
        words = words_of(leader, self._defaults, self._core_sets)
        self._progress.say(
            f"Comparing with the defaults, in alternation: {words}.{self._time_limit.overrun()}"
        )

        def measure(setting: Setting, place: SweepPoint) -> Outcome:
            attempt = self._measurer.measure(setting, self._measurer.rungs - 1, place)
            return self._judge.judged(setting, attempt).outcome

        def said(one: Compared) -> None:
            doubt = f" (not counted: {one.disturbance})" if one.disturbance else ""
            self._progress.say(f"  {one.side}: {cost_words(tuning.objective, one.cost)}{doubt}")

        return confirm(measure, leader, self._defaults, self._tuned, said)

    def _note(
        self,
        trial: Trial,
        outcome: Outcome,
        quality: Quality,
        took_s: float,
        *,
        rss_bytes: int | None = None,
    ) -> None:
        entry = TuningEntry(
            trial=trial,
            outcome=outcome.model_copy(update={"took_s": took_s}),
            max_rss_bytes=rss_bytes,
            quality=quality,
            ended_s=self._tuned.spent_s + took_s,
        )
        self._tuned.append(entry)
        self._search.tell(trial, entry.outcome)
        self._report(entry, self._search.state)

    def _recall(self, entry: TuningEntry) -> None:
        self._place(entry.trial.setting, entry.trial.number)
        self._search.tell(entry.trial, entry.outcome)
        self._judge.recall(
            entry.trial.setting, Judged(outcome=entry.outcome, quality=entry.quality)
        )
        if entry.trial.setting.key == self._defaults.key:
            for run in entry.outcome.evidence:
                with contextlib.suppress(ArmloadError):  # it was deleted meanwhile, or is no run
                    self._take_reference(entry.trial, store.load(runs_folder() / run).text)

    def _place(self, setting: Setting, number: int) -> SweepPoint:
        cell = self._cells.setdefault(setting.key, len(self._cells))
        return SweepPoint(sweep=self._tuned.tuning.id, cell=cell, round=number)

    def _next_trial(self, leader: ChoiceEstimate) -> Trial:
        return Trial(number=len(self._tuned.entries), setting=leader.setting, rung=leader.rung)

    def _default_cost(self) -> float | None:
        costs = [
            each.outcome.cost
            for each in self._tuned.entries
            if each.trial.setting.key == self._defaults.key and each.outcome.status == "measured"
        ]
        return costs[-1] if costs else None

    def _nothing_works(self) -> RunError:
        entries, tuning = self._tuned.entries, self._tuned.tuning
        reasons = Counter(each.outcome.reason for each in entries)
        (reason, count), *_ = reasons.most_common(1)
        runs = [run for each in entries for run in each.outcome.evidence]
        return RunError(
            f"{tuning.board}: every configuration failed for {tuning.model}. In {count} of "
            f"{counted(len(entries), 'trial')}: {reason}",
            f"Look at the last run: armload show {runs[-1]}" if runs else "",
        )

    def _result(
        self,
        leader: ChoiceEstimate,
        state: SearchState,
        confirmation: Confirmation | None,
        ended: str,
    ) -> SearchResult:
        winner, cost = leader.setting, leader.cost
        interval: Interval | None = leader.interval
        if confirmation is not None:
            faster = confirmation.is_faster
            winner = leader.setting if faster else self._defaults
            costs = confirmation.leader_costs if faster else confirmation.defaults_costs
            cost = median(costs) if costs else self._default_cost() or leader.cost
            interval = interval_of_runs(costs)
        return SearchResult(
            winner=winner,
            cost=cost,
            interval=interval,
            ended=ended,
            trials=len(self._tuned.entries),
            took_s=self._tuned.spent_s,
            violation=state.violation,
            confirmation=confirmation,
            sentence=sentence_of(
                self._tuned.tuning, leader, confirmation, self._default_cost(), self._core_sets
            ),
        )
