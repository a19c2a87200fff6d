"""Repeats: intervals that hold at whatever number of runs one stops, and when one stops."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from armload.analysis.repeats import (
    BATCHES,
    Precision,
    interval_of_batches,
    interval_of_figures,
    judged_together,
    known,
    middle,
    rank,
    stop,
)
from armload.analysis.run import Finding, FindingName, Run, Summary, TokenTimes, Verdict
from armload.analysis.statistics import CONFIDENCE
from armload.bench.sweep import Entry, Sweep, begin, growing
from armload.core.progress import Silent
from armload.core.workspace import runs_folder
from armload.deploy.exit_reason import Exit
from armload.engines.job import Place
from armload.engines.plan import Plan
from armload.runs import store
from tests.unit.runs import quick_run
from tests.unit.samples import plan_cells, sweep_of

WANTED = Precision(share=0.05, added_s=60)
TOKENS = 95
MOST_RUNS = 24
DRAWS = 1500


def run(
    p50_s: float = 0.1,
    finding: FindingName | None = None,
    *,
    number: int = 0,
    precision: float | None = 0.05,
    status: int = 0,
) -> Run:
    """Return a run of few tokens, so that its own do not show its median."""
    base = quick_run()
    found = [Finding(name=finding, sentence=f"It was {finding}.")] if finding else []
    return base.model_copy(
        update={
            "id": f"{base.id}-{number}",
            "place": Place(sweep="s", cell=0, round=number, precision=precision),
            "summary": Summary(
                ttft_s=1,
                prefill_tps=9,
                decode_tps=1 / p50_s,
                token_s=TokenTimes(p50=p50_s, p90=1, p99=1, max=1),
                wall_s=3,
            ),
            "verdict": Verdict.of(found),
            "exit": Exit(status=status, meaning="it ended"),
        }
    )


def runs(figures: Sequence[float], finding: FindingName | None = "few tokens") -> list[Run]:
    return [run(figure, finding, number=number) for number, figure in enumerate(figures)]


def grown_sweep(identity: str) -> Sweep:
    cells = plan_cells(Plan())
    return sweep_of(*cells, identity=identity, begun=datetime.now(UTC), precision=WANTED)


def drawn(shape: tuple[int, ...], *, alike: float, spread: float) -> np.ndarray:
    """Return times whose median is 1, each like the one before to the degree ``alike``."""
    chance = np.random.default_rng(11)
    fresh = chance.standard_normal(shape)
    noise = fresh.copy()
    for place in range(1, shape[-1]):
        noise[..., place] = (
            alike * noise[..., place - 1] + np.sqrt(1 - alike**2) * fresh[..., place]
        )
    return np.asarray(np.exp(spread * noise))


@pytest.mark.parametrize("alike", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("spread", [0.02, 0.1, 0.3])
def test_the_interval_at_which_one_stops_holds_the_median_as_often_as_is_said(
    alike: float, spread: float
) -> None:
    times = drawn((DRAWS, MOST_RUNS, TOKENS), alike=alike, spread=spread)
    open_ = np.ones(DRAWS, dtype=bool)
    missed = np.zeros(DRAWS, dtype=bool)

    def look(low: np.ndarray, high: np.ndarray, middles: np.ndarray, *, last: bool = False) -> None:
        narrow = np.maximum(high / middles - 1, 1 - low / middles) <= WANTED.share
        ends = open_ & (narrow | last)
        missed[ends] = ((low > 1) | (high < 1))[ends]
        open_[ends] = False

    first = [interval_of_batches(row.tolist()) for row in times[:, 0]]
    low = np.array([each.low for each in first if each])
    high = np.array([each.high for each in first if each])
    medians = np.median(times, axis=2)
    look(low, high, medians[:, 0])
    for count in range(2, MOST_RUNS + 1):
        place = rank(count)
        if place:
            ranked = np.sort(medians[:, :count], axis=1)
            middles = np.median(ranked, axis=1)
            look(ranked[:, place - 1], ranked[:, -place], middles, last=count == MOST_RUNS)
    assert not open_.any()
    assert missed.mean() <= 1 - CONFIDENCE


def test_no_way_to_choose_when_to_stop_makes_the_intervals_of_runs_miss_more_often() -> None:
    # The worst that one may do is to stop at the first interval that misses; a run's own tokens
    # have their part of the error apart from that.
    below = np.random.default_rng(5).random((40_000, 60)) < 0.5
    counts = np.cumsum(below, axis=1)
    missed = np.zeros(len(below), dtype=bool)
    for count in range(1, 61):
        place = rank(count)
        here = counts[:, count - 1]
        missed |= (place > 0) & ((here < place) | (here > count - place))
    assert 0.025 < missed.mean() < 0.04, "and they are no wider than they must be"


def test_the_interval_of_runs_is_bounded_by_figures_that_lie_equally_far_inside() -> None:
    figures = [random.Random(3).gauss(1, 0.1) for _ in range(14)]
    found = interval_of_figures(figures)
    assert found is not None
    assert (found.low, found.high) == (sorted(figures)[rank(14) - 1], sorted(figures)[-rank(14)])
    assert interval_of_figures(figures[:6]) is None
    assert interval_of_figures(figures[:7]) is not None


def test_too_few_tokens_for_long_batches_have_no_interval_of_their_own() -> None:
    assert interval_of_batches([1.0] * (16 * BATCHES - 1)) is None
    assert interval_of_batches([1.0] * (16 * BATCHES)) is not None


def test_no_time_is_below_zero_however_much_tokens_vary() -> None:
    found = interval_of_batches([*[0.1] * 64, *[5.0] * 16])
    assert found is not None
    assert found.low == 0


def decided(several: Sequence[Run], *, added_s: float = 0, a_run_s: float | None = 3) -> str | None:
    ended = stop(several, WANTED, added_s=added_s, a_run_s=a_run_s)
    return None if ended is None else ended.why


def test_repeats_end_where_the_precision_is_reached_and_not_before() -> None:
    narrow = [0.1, 0.101, 0.099, 0.1, 0.102, 0.098, 0.1]
    for count in range(7):
        assert decided(runs(narrow[:count])) is None
    ended = stop(runs(narrow), WANTED, added_s=18, a_run_s=3)
    assert ended is not None
    assert ended.reached
    assert decided(runs([each * (1 + number / 20) for number, each in enumerate(narrow)])) is None


def test_a_run_whose_own_tokens_show_its_median_needs_no_repeat() -> None:
    single = quick_run(tokens=96)
    assert single.verdict.valid
    ended = stop([single], WANTED, added_s=0, a_run_s=3)
    assert ended is not None
    assert ended.reached


@pytest.mark.parametrize("cause", ["throttled", "contended", "unsteady", "swapped"])
def test_disturbed_runs_count_for_nothing_and_three_in_a_row_are_the_reason_to_end(
    cause: FindingName,
) -> None:
    disturbed = [run(9.0, cause, number=number) for number in range(3)]
    assert known(disturbed) is None
    assert decided(disturbed[:2]) is None
    assert decided(disturbed) == f"3 runs in a row were disturbed. It was {cause}."
    assert decided([*disturbed[:2], run(), disturbed[2]]) is None
    found = known([*disturbed, *runs([0.1] * 7)])
    assert found is not None
    assert (found.runs, found.p50_s, found.within) == (7, 0.1, 0)


@pytest.mark.parametrize("cause", ["exit", "no trace", "text", "reference", "storage full"])
def test_what_a_repeat_would_not_mend_is_not_repeated(cause: FindingName) -> None:
    why = decided([run(finding=cause)])
    assert why is not None
    assert f"It was {cause}." in why


def test_repeats_that_cannot_suffice_in_time_are_not_begun_and_the_time_is_told() -> None:
    assert decided(runs([0.1]), a_run_s=10) is None, "six of ten seconds fit into a minute"
    assert decided(runs([0.1]), a_run_s=11) == (
        "6 more runs of about 11 s would be needed, beyond what is left of the 60 s that repeats "
        "may add; --precision-time 70 allows them."
    )
    wide = runs([0.08, 0.09, 0.1, 0.11, 0.12, 0.1, 0.1])
    assert decided(wide, added_s=57) is None
    why = decided([*wide, run(number=9, finding="contended")], added_s=58)
    assert why is not None
    assert "Disturbed: 1 of 8 runs. It was contended." in why


def test_runs_that_lack_tokens_are_valid_with_enough_repeats_and_with_them_alone() -> None:
    narrow = runs([0.1, 0.101, 0.099, 0.1, 0.102, 0.098, 0.1])
    judged = judged_together(narrow)
    assert all(each.verdict.valid for each in judged)
    assert "the median of 7 runs is known within 2.0%" in judged[0].notes[-1]
    assert judged_together(narrow[:6]) == narrow[:6]
    fixed = [each.model_copy(update={"place": None}) for each in narrow]
    assert judged_together(fixed) == fixed
    hot = run(0.1, "throttled", number=8)
    assert judged_together([*narrow, hot])[-1] == hot
    wide = runs([0.05, 0.2, 0.1, 0.3, 0.02, 0.1, 0.4])
    assert judged_together(wide) == wide


def test_the_run_in_the_middle_stands_for_all() -> None:
    several = runs([0.3, 0.1, 0.2])
    assert middle(several) is several[2]
    hot = run(0.1, "throttled")
    assert middle([hot]) is hot


def test_an_interrupted_command_goes_on_with_its_repeats_and_a_finished_one_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = runs([0.1] * 7)
    first = begin(grown_sweep("one"))
    for number, each in enumerate(made):
        found = growing(grown_sweep("two"), WANTED, Silent())
        assert found is not None
        assert found.sweep.id == first.sweep.id
        assert len(found.entries) == number
        store.save(each, runs_folder() / each.id)
        first.note(Entry(cell=0, round=number, run=each.id, took_s=3))
    assert growing(grown_sweep("two"), WANTED, Silent()) is None
