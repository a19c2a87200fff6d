"""A search from its first trial to the plan file, with a stand-in for the board's runs."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from types import SimpleNamespace

import pytest

from armload.core.errors import (
    ArmloadError,
    ConnectError,
    DataError,
    DiskError,
    RunError,
    UsageError,
)
from armload.core.progress import Progress, Silent
from armload.engines.job import SweepPoint
from armload.report.pages import render
from armload.report.tuning.page import tuning_page
from armload.report.tuning.view import TuningView
from armload.tuning import searching as tuning_searching
from armload.tuning.confirming import MOST_PAIRS, runs_compared
from armload.tuning.outcome_words import cost_words
from armload.tuning.quality import Check, Judge
from armload.tuning.record import Quality, TuningEntry, TuningFolder
from armload.tuning.search import Search
from armload.tuning.searching import Searching
from armload.tuning.space import Feasibility, Key, Setting
from armload.tuning.trial import Outcome, TrialAttempt
from tests.unit.tunings import BEST, SPACE, TRAP, tuned


@pytest.fixture(autouse=True)
def _in_a_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@dataclass
class Board:
    """Costs of settings, with 1% of noise that depends on the place of a run alone.

    Attributes:
        garbage, failing: settings whose runs end so.
        other_text: settings that write something else.
        disturbed: settings whose runs another program slows down.
        unplugged_after: so many measurements the board answers.
    """

    costs: dict[Key, float] = field(default_factory=dict)
    garbage: Sequence[Setting] = ()
    failing: Sequence[Setting] = ()
    other_text: Sequence[Setting] = ()
    disturbed: Sequence[Setting] = ()
    unplugged_after: int | None = None
    made: list[tuple[Setting, int]] = field(default_factory=list)
    rungs: int = 3

    def prior(self, setting: Setting) -> Feasibility:
        return Feasibility()

    def measure(self, setting: Setting, rung: int, place: SweepPoint) -> TrialAttempt:
        if self.unplugged_after is not None and len(self.made) >= self.unplugged_after:
            raise ConnectError("kitchen does not answer.")
        self.made.append((setting, rung))
        if setting in self.failing:
            return TrialAttempt(outcome=Outcome(status="failed", reason="It crashed."))
        noise = random.Random(f"{setting.key} {rung} {place.round}").gauss(1, 0.01)
        cost = self.costs.get(setting.key, 1.0) * noise
        is_garbage = setting in self.garbage
        return TrialAttempt(
            outcome=Outcome(
                status="violates" if is_garbage else "measured",
                cost=cost,
                reason="The text ends in a loop." if is_garbage else "",
                disturbance="Contended." if setting in self.disturbed else "",
                evidence=(f"run-{len(self.made)}",),
            ),
            text="another story" if setting in self.other_text else "once upon a time"[: 5 + rung],
            max_rss_bytes=1000,
        )


def searching(
    kept: TuningFolder,
    board: Board,
    checks: Sequence[Check] = (),
    *,
    most_rss_bytes: int | None = None,
    max_time_s: float | None = None,
    most_trials: int | None = None,
    progress: Progress | None = None,
) -> Searching:
    return Searching(
        kept,
        board,
        Judge(SPACE.defaults, most_rss_bytes=most_rss_bytes, checks=checks),
        Search(
            SPACE,
            seed=kept.tuning.seed,
            most_trials=most_trials,
            rungs=board.rungs,
            prior=board.prior,
        ),
        progress or Silent(),
        max_time_s=max_time_s,
        core_sets={},
        report=lambda entry, state: None,
    )


class Spoken(Silent):
    """Keeps the lines that stay."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)


def tried(kept: TuningFolder) -> list[tuple[int, Setting, int, float | None]]:
    return [
        (each.trial.number, each.trial.setting, each.trial.rung, each.outcome.cost)
        for each in kept.entries
    ]


def test_what_is_faster_wins_and_is_confirmed_beside_the_defaults() -> None:
    kept, board = tuned(), Board(costs={BEST.key: 0.5})
    result = searching(kept, board).run()
    assert result.winner == BEST
    assert result.confirmation is not None
    assert result.confirmation.is_faster
    assert result.confirmation.speed is not None
    assert 1.9 < result.confirmation.speed.low <= result.confirmation.speed.ratio < 2.1
    assert len(result.confirmation.defaults_runs) == len(result.confirmation.leader_runs) == 4
    assert result.sentence.startswith("2.0")
    assert "\u00d7 the default speed (95% CI " in result.sentence
    assert "3 threads, KV cache q8_0" in result.sentence
    assert result.cost == median(result.confirmation.leader_costs)
    sides = [setting for setting, _ in board.made[-8:]]
    assert sides == [SPACE.defaults, BEST, BEST, SPACE.defaults] * 2


def test_what_takes_less_energy_wins_as_more_efficient() -> None:
    kept = tuned(objective="energy")
    result = searching(kept, Board(costs={BEST.key: 0.5})).run()
    assert result.winner == BEST
    assert "× the default efficiency (95% CI " in result.sentence
    assert result.sentence.endswith("J/token.")
    page = render(tuning_page(TuningView.of(kept), kept.folder))
    assert "tuned for energy per generated token" in page
    assert "at the wall, idle power included" in page
    other = searching(tuned(objective="energy"), Board()).run()
    assert other.sentence.startswith("No configuration is more efficient than the defaults")
    for words in (result.sentence, result.ended, other.sentence, other.ended):
        assert "fast" not in words
        assert "speed" not in words


def test_a_comparison_on_a_busy_board_confirms_nothing_and_is_repeated_by_the_same_command() -> (
    None
):
    kept, busy = tuned(), Board(costs={BEST.key: 0.5}, disturbed=[SPACE.defaults])
    result = searching(kept, busy).run()
    assert result.is_unconfirmed
    assert result.winner == SPACE.defaults
    assert result.sentence.startswith(
        f"Not confirmed: {MOST_PAIRS} of the {2 * MOST_PAIRS} runs that compare "
    )
    assert "\u00d7" not in result.sentence
    kept.end(result)
    again = TuningFolder.resume(kept.tuning, Silent())
    assert again is not None
    calm = Board(costs={BEST.key: 0.5})
    second = searching(again, calm).run()
    assert second.winner == BEST
    assert len(calm.made) == 8, "the comparison alone runs again"
    kept.end(second)
    assert TuningFolder.resume(kept.tuning, Silent()) is None


def test_disturbed_pairs_are_repeated_and_do_not_count() -> None:
    class Twice(Board):
        """The first two runs of the comparison's leader are disturbed, and slow."""

        def measure(self, setting: Setting, rung: int, place: SweepPoint) -> TrialAttempt:
            made = super().measure(setting, rung, place)
            is_compared = place.cell == 1 and rung == self.rungs - 1 and setting == BEST
            if not (is_compared and len(runs_compared(kept)) in (1, 2)):
                return made
            slow = made.outcome.model_copy(update={"cost": 9.0, "disturbance": "Contended."})
            return replace(made, outcome=slow)

    kept = tuned()
    result = searching(kept, Twice(costs={BEST.key: 0.5})).run()
    found = result.confirmation
    assert found is not None
    assert found.is_faster
    assert (found.runs, found.disturbances) == (12, ("Contended.", "Contended."))
    assert max(found.leader_costs) < 0.6
    assert len(found.leader_costs) == len(found.defaults_costs) == 4
    assert "disturbed" not in result.sentence


def test_the_figures_of_the_result_are_those_of_the_comparison() -> None:
    kept = tuned()
    result = searching(kept, Board(costs={BEST.key: 0.5})).run()
    found = result.confirmation
    assert found is not None
    now, before = (
        cost_words(kept.tuning.objective, median(costs))
        for costs in (found.leader_costs, found.defaults_costs)
    )
    assert result.sentence.endswith(f": {now} instead of {before}.")


def test_where_nothing_is_faster_the_defaults_win() -> None:
    kept = tuned()
    board = Board(costs={SPACE.defaults.key: 0.9})
    result = searching(kept, board).run()
    assert result.winner == SPACE.defaults
    assert result.sentence.startswith("No configuration is faster than the defaults")


@pytest.mark.parametrize("seed", range(5))
def test_a_faster_setting_that_writes_garbage_never_wins(seed: int) -> None:
    board = Board(costs={BEST.key: 0.7, TRAP.key: 0.1}, garbage=[TRAP])
    result = searching(tuned(seed), board).run()
    assert result.winner == BEST
    if (TRAP, 0) in board.made:
        assert result.violation is not None
        assert result.violation.setting == TRAP
        assert result.violation.reason == "The text ends in a loop."


@pytest.mark.parametrize("seed", range(5))
def test_a_faster_setting_that_fails_its_check_never_wins_and_others_are_not_checked(
    seed: int,
) -> None:
    checked = []

    def check(setting: Setting, text: str | None) -> tuple[Quality, str]:
        checked.append(str(setting.choices["kv_type"]))
        assert text == "once up"  # the longest that the defaults wrote
        is_bad = setting.choices["kv_type"] == "q4_0"
        return Quality(kl_mean=0.3 if is_bad else 0.01), "Too far." if is_bad else ""

    board = Board(costs={BEST.key: 0.7, TRAP.key: 0.1})
    kept = tuned(seed)
    result = searching(kept, board, [check]).run()
    assert result.winner == BEST
    assert sorted(set(checked)) == sorted(checked), "settings that compute alike are checked once"
    for each in kept.entries:
        if each.outcome.status == "violates":
            assert each.trial.setting.choices["kv_type"] == "q4_0"
            assert each.quality.kl_mean == 0.3


def test_what_a_check_at_the_end_found_is_kept_and_not_asked_again() -> None:
    checked = []

    def check(setting: Setting, text: str | None) -> tuple[Quality, str]:
        checked.append(setting)
        return Quality(kl_mean=0.01), ""

    quick = [each for each in SPACE.settings() if each.choices["kv_type"] == "q8_0"]
    board = Board(costs={each.key: 0.5 for each in quick})
    kept = tuned()
    result = searching(kept, board, [check], most_trials=8).run()
    assert len(checked) == 1, "the limit ended the search before its leader had a long trial"
    known = [each for each in kept.entries if each.trial.setting == result.winner]
    assert known[-1].quality.kl_mean == 0.01
    again = searching(TuningFolder.read(kept.folder), board, [check], most_trials=8).run()
    assert again.winner == result.winner
    assert len(checked) == 1


def test_a_check_that_cannot_be_made_is_a_violation() -> None:
    def check(setting: Setting, text: str | None) -> tuple[Quality, str]:
        raise RunError("the scorer crashed.")

    result = searching(tuned(), Board(costs={BEST.key: 0.5}), [check]).run()
    assert result.winner.choices["kv_type"] is None
    assert result.violation is not None
    assert "could not be checked: the scorer crashed" in result.violation.reason


@pytest.mark.parametrize("kind", [UsageError, DataError, DiskError])
def test_a_check_that_no_setting_can_have_ends_the_search(kind: type[ArmloadError]) -> None:
    def check(setting: Setting, text: str | None) -> tuple[Quality, str]:
        raise kind("There are no questions.")

    with pytest.raises(kind, match="There are no questions"):
        searching(tuned(), Board(costs={BEST.key: 0.5}), [check]).run()


def test_other_threads_must_write_what_the_defaults_write() -> None:
    other = Setting(choices={"threads": 2, "kv_type": None, "engine_args": None})
    kernels = Setting(choices={"threads": None, "kv_type": None, "engine_args": "--no-repack"})
    judge = Judge(SPACE.defaults, most_rss_bytes=None, checks=())
    board = Board(other_text=[other, kernels])
    place = SweepPoint(sweep="s", cell=0, round=0)
    judge.take_reference(SPACE.defaults, "once upon")
    judged = judge.judged(other, board.measure(other, 0, place))
    assert judged.outcome.status == "violates"
    assert "differs" in judged.outcome.reason
    noted = judge.judged(kernels, board.measure(kernels, 0, place))
    assert (noted.outcome.status, noted.quality.same_text) == ("measured", False)


def test_too_much_memory_is_a_violation() -> None:
    with pytest.raises(RunError, match=r"every configuration failed.*It took 1\.0 kB of memory"):
        searching(tuned(), Board(), most_rss_bytes=999, most_trials=4).run()


def test_a_leader_that_fails_in_the_comparison_makes_way_for_the_next() -> None:
    second = Setting(choices={"threads": 2, "kv_type": None, "engine_args": None})

    class Failing(Board):
        def measure(self, setting: Setting, rung: int, place: SweepPoint) -> TrialAttempt:
            is_comparing = place.cell == 1 and self.made and kept.entries
            if is_comparing and setting == BEST and self._has_led():
                self.failing = [BEST]
            return super().measure(setting, rung, place)

        def _has_led(self) -> bool:
            return self.made[-1][0] == SPACE.defaults and self.made[-1][1] == self.rungs - 1

    kept = tuned()
    result = searching(kept, Failing(costs={BEST.key: 0.5, second.key: 0.7})).run()
    assert result.winner == second
    found = result.confirmation
    assert found is not None
    assert found.leader == second
    compared = [each for each in runs_compared(kept) if each.leader == second]
    assert len(compared) == 8, "runs of the defaults beside another leader are not taken over"


def test_an_interrupted_search_goes_on_as_if_it_had_not_been() -> None:
    whole = tuned()
    expected = searching(whole, Board(costs={BEST.key: 0.5})).run()
    parts = tuned()
    answered = 0
    for after in (1, 3, 4, 200):
        board = Board(costs={BEST.key: 0.5}, unplugged_after=after)
        try:
            found = searching(TuningFolder(parts.folder, parts.tuning), board).run()
        except ConnectError:
            answered += after
            assert len(TuningFolder(parts.folder, parts.tuning).entries) == answered
    again = TuningFolder(parts.folder, parts.tuning)
    assert tried(again) == tried(whole)
    assert found.winner == expected.winner
    assert found.confirmation is not None
    assert expected.confirmation is not None
    assert found.confirmation.speed == expected.confirmation.speed


def test_an_interrupted_comparison_makes_the_missing_pairs_alone() -> None:
    kept = tuned()
    total = Board(costs={BEST.key: 0.5})
    searching(kept, total).run()
    trials = len(kept.entries)
    other = tuned()
    with pytest.raises(ConnectError):
        searching(other, Board(costs={BEST.key: 0.5}, unplugged_after=trials + 3)).run()
    rest = Board(costs={BEST.key: 0.5})
    result = searching(TuningFolder(other.folder, other.tuning), rest).run()
    assert len(rest.made) == 6, "half a pair was not run in turn"
    assert result.confirmation is not None
    assert len(result.confirmation.defaults_runs) == 4


def test_no_trial_begins_after_the_time_is_up_and_the_leader_is_confirmed() -> None:
    kept = tuned()
    result = searching(kept, Board(costs={SPACE.defaults.key: 2.0}), max_time_s=1e-9).run()
    assert result.ended == "--max-time was reached."
    assert len(kept.entries) == 1
    assert result.winner == SPACE.defaults


@dataclass
class SlowBoard(Board):
    """Every run takes 10 s of a clock of its own."""

    clock_s: float = 0.0

    def measure(self, setting: Setting, rung: int, place: SweepPoint) -> TrialAttempt:
        self.clock_s += 10
        return super().measure(setting, rung, place)


@pytest.mark.parametrize("max_time_s", [1, 60, 120, 170, 300])
def test_a_search_ends_within_its_time_or_says_how_much_longer_it_takes(
    max_time_s: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = SlowBoard(costs={BEST.key: 0.5, TRAP.key: 0.7, SPACE.defaults.key: 2.0})
    monkeypatch.setattr(tuning_searching, "time", SimpleNamespace(monotonic=lambda: board.clock_s))
    kept, said = tuned(), Spoken()
    result = searching(kept, board, max_time_s=max_time_s, progress=said).run()
    (*_, comparison) = ["", *(line for line in said.lines if line.startswith("Comparing"))]
    assert bool(result.confirmation) == bool(comparison)
    over_s = board.clock_s - max_time_s
    if result.confirmation and over_s > 0:
        assert f"ends about {over_s:.0f} s after --max-time" in comparison
        assert "about 80 s" in comparison
        assert max_time_s < 160, "half of the time is more than the comparison takes"
    else:
        assert "--max-time" not in comparison
        assert over_s <= 0 or len(board.made) == 1
    if max_time_s >= 120:
        assert len(kept.entries) > 1, "the reserve leaves time to search"
        assert result.confirmation is not None


def test_where_no_setting_works_the_most_frequent_reason_is_said() -> None:
    board = Board(failing=[SPACE.defaults, *SPACE.settings()])
    with pytest.raises(RunError, match=r"every configuration failed for m\.gguf.*It crashed\."):
        searching(tuned(), board).run()


def test_defaults_that_do_not_run_are_beaten_by_any_setting_that_does() -> None:
    board = Board(failing=[SPACE.defaults], costs={BEST.key: 0.5})
    result = searching(tuned(), board).run()
    assert result.winner == BEST
    assert result.confirmation is None
    assert "The defaults cannot run" in result.sentence


def test_entries_have_the_time_without_interruptions() -> None:
    kept = tuned()
    searching(kept, Board(), most_trials=5).run()
    ends = [entry.ended_s for entry in kept.entries]
    assert ends == sorted(ends)
    assert kept.spent_s == pytest.approx(sum(e.outcome.took_s for e in kept.entries))
    assert all(isinstance(entry, TuningEntry) for entry in kept.entries)
