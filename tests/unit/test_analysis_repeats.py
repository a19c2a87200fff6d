"""Repeats: intervals that hold at whatever number of runs one stops, and when one stops."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from armload.analysis.confidence_sequence import interval_of_figures, rank
from armload.analysis.repeats import (
    NotFinished,
    OutOfTime,
    Precision,
    PrecisionReached,
    judged_together,
    known,
    middle,
    stop,
)
from armload.analysis.run import Run
from armload.analysis.summary import Summary, TokenTimes
from armload.analysis.verdict import FindingName
from armload.bench.sweep import Sweep, SweepEntry, SweepFolder
from armload.core.progress import Silent
from armload.core.workspace import runs_folder
from armload.deploy.exit_reason import Exit
from armload.engines.job import SweepPoint
from armload.engines.plan import Plan
from armload.runs import store
from tests.unit.findings import verdict_of
from tests.unit.runs import quick_run
from tests.unit.samples import plan_cells, sweep_of

WANTED = Precision(share=0.05, added_s=60)
TOKENS = 95
DRAWS, MANY_DRAWS = 250, 4000


def run(
    p50_s: float = 0.1,
    finding: FindingName | None = None,
    *,
    number: int = 0,
    precision: float | None = 0.05,
    status: int = 0,
) -> Run:
    """Return a run of few tokens, so that its own do not show its median."""
    base = _base()
    return base.model_copy(
        update={
            "id": f"{base.id}-{number}",
            "place": SweepPoint(sweep="s", cell=0, round=number, precision=precision),
            "summary": Summary(
                ttft_s=1,
                prefill_tps=9,
                decode_tps=1 / p50_s,
                token_s=TokenTimes(p50=p50_s, p90=1, p99=1, max=1),
                wall_s=3,
            ),
            "verdict": verdict_of(**({finding: f"It was {finding}."} if finding else {})),
            "exit": Exit(kind="exit status", status=status, meaning="it ended"),
        }
    )


def runs(figures: Sequence[float], finding: FindingName | None = "imprecise") -> list[Run]:
    return [run(figure, finding, number=number) for number, figure in enumerate(figures)]


def grown_sweep(identity: str, wanted: Precision = WANTED) -> Sweep:
    cells = plan_cells(Plan())
    return sweep_of(*cells, identity=identity, begun=datetime.now(UTC), precision=wanted)


@cache
def _base() -> Run:
    return quick_run()


def drawn(chance: np.random.Generator, tokens: int, *, alike: float, spread: float) -> np.ndarray:
    """Return times whose median is 1, each like the one before to the degree ``alike``."""
    fresh = chance.standard_normal(tokens)
    noise = fresh.copy()
    for place in range(1, tokens):
        noise[place] = alike * noise[place - 1] + np.sqrt(1 - alike**2) * fresh[place]
    return np.asarray(np.exp(spread * noise))


def repeated(
    between: float, within: float, alike: float, *, seed: int, a_run_s: float
) -> tuple[bool, bool, int]:
    """Repeat a run until the rule ends it, within a minute of repeats.

    Return whether the interval holds the median over runs, whether it is as narrow as was wanted,
    and how many runs there were.
    """
    chance = np.random.default_rng(
        [seed, *(round(1000 * each) for each in (between, within, alike))]
    )
    made: list[Run] = []
    ended = None
    while ended is None:
        times = drawn(chance, TOKENS, alike=alike, spread=within)
        figure = float(np.median(times) * np.exp(between * chance.standard_normal()))
        made.append(run(figure, "imprecise", number=len(made)))
        ended = stop(made, WANTED, added_s=a_run_s * (len(made) - 1), a_run_s=a_run_s)
    found = known(made)
    assert found is not None
    assert found.interval_s is not None
    return (
        found.interval_s.low <= 1 <= found.interval_s.high,
        ended == PrecisionReached(),
        len(made),
    )


spreads = pytest.mark.parametrize("between", [0.01, 0.02, 0.04, 0.08])
tokens = pytest.mark.parametrize(
    ("within", "alike"), [(0.02, 0.0), (0.05, 0.9), (0.15, 0.0), (0.15, 0.9)]
)


@pytest.mark.parametrize(
    ("between", "within", "alike"), [(0.01, 0.02, 0.0), (0.02, 0.05, 0.9), (0.08, 0.15, 0.9)]
)
def test_the_interval_at_which_one_stops_holds_the_median_over_runs(
    between: float, within: float, alike: float
) -> None:
    found = [repeated(between, within, alike, seed=seed, a_run_s=3) for seed in range(DRAWS)]
    covered, reached, counts = zip(*found, strict=True)
    assert np.mean(covered) >= 0.92
    assert min(counts) >= 5
    if between <= 0.02 and within <= 0.05:
        assert np.mean(reached) > 0.9, "steady runs are known soon"


@pytest.mark.exhaustive(covers=["armload/analysis/repeats.py"])
@pytest.mark.parametrize("a_run_s", [3.0, 11.0])
@spreads
@tokens
def test_the_interval_holds_the_median_in_nearly_all_of_many_draws(
    between: float, within: float, alike: float, a_run_s: float
) -> None:
    """With runs so long that time ends the repeats at the first interval, too."""
    seeds = range(10_000, 10_000 + MANY_DRAWS)
    found = [repeated(between, within, alike, seed=seed, a_run_s=a_run_s) for seed in seeds]
    assert np.mean([covers for covers, _, _ in found]) >= 0.945


def test_no_way_to_choose_when_to_stop_makes_the_intervals_of_runs_miss_more_often() -> None:
    # The worst that one may do is to stop at the first interval that misses.
    below = np.random.default_rng(5).random((40_000, 60)) < 0.5
    counts = np.cumsum(below, axis=1)
    missed = np.zeros(len(below), dtype=bool)
    for count in range(1, 61):
        place = rank(count)
        here = counts[:, count - 1]
        missed |= (place > 0) & ((here < place) | (here > count - place))
    assert 0.035 < missed.mean() < 0.05, "and they are no wider than they must be"


def test_the_interval_of_runs_is_bounded_by_figures_that_lie_equally_far_inside() -> None:
    figures = [random.Random(3).gauss(1, 0.1) for _ in range(14)]
    found = interval_of_figures(figures)
    assert found is not None
    assert (found.low, found.high) == (sorted(figures)[rank(14) - 1], sorted(figures)[-rank(14)])
    assert interval_of_figures(figures[:5]) is None
    assert interval_of_figures(figures[:6]) is not None


def decided(several: Sequence[Run], *, added_s: float = 0, a_run_s: float | None = 3) -> str | None:
    ended = stop(several, WANTED, added_s=added_s, a_run_s=a_run_s)
    return None if ended is None else ended.fact()


def test_repeats_end_where_the_precision_is_reached_and_not_before() -> None:
    narrow = [0.1, 0.101, 0.099, 0.1, 0.102, 0.098]
    for count in range(6):
        assert decided(runs(narrow[:count])) is None
    ended = stop(runs(narrow), WANTED, added_s=18, a_run_s=3)
    assert ended == PrecisionReached()
    assert decided(runs([each * (1 + number / 20) for number, each in enumerate(narrow)])) is None


def test_one_run_is_not_enough_however_steady_its_tokens_are() -> None:
    single = quick_run(tokens=96)
    assert single.verdict.valid
    found = known([single])
    assert found is not None
    assert found.interval_s is None
    assert decided([single]) is None


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
    assert (found.runs, found.median_s, found.within) == (7, 0.1, 0)


@pytest.mark.parametrize(
    "cause", ["failed", "no trace", "degenerate text", "text differs", "storage full"]
)
def test_what_a_repeat_would_not_mend_is_not_repeated(cause: FindingName) -> None:
    why = decided([run(finding=cause)])
    assert why is not None
    assert f"It was {cause}." in why


def test_an_interrupted_run_is_no_fault_that_a_repeat_would_have() -> None:
    cut = run(finding="failed")
    ended = stop(
        [cut.model_copy(update={"exit": cut.exit.model_copy(update={"kind": "restart"})})],
        WANTED,
        added_s=0,
        a_run_s=3,
    )
    assert isinstance(ended, NotFinished)


def test_repeats_that_cannot_suffice_in_time_are_not_begun_and_the_time_is_told() -> None:
    assert decided(runs([0.1]), a_run_s=12) is None, "five of twelve seconds fit"
    assert decided(runs([0.1]), a_run_s=13) == (
        "5 more runs of about 13 s would be needed, which exceeds the time limit for repeats "
        "(60 s). To allow them, use --precision-time 120."
    )
    (hot,) = [run(finding="contended")]
    assert decided([hot], a_run_s=20) == (
        "at least 6 more runs of about 20 s would be needed, which exceeds the time limit for "
        "repeats (60 s). The only run was disturbed. It was contended."
    )
    wide = runs([0.08, 0.09, 0.1, 0.11, 0.12, 0.1, 0.1])
    assert decided(wide, added_s=57) is None
    why = decided([*wide, run(number=9, finding="contended")], added_s=58)
    assert why is not None
    assert "1 of 8 runs was disturbed. It was contended." in why


def test_runs_that_differ_too_much_are_not_answered_with_thousands_more() -> None:
    why = decided(runs([0.02, 0.2, 0.1, 0.3, 0.4, 0.1, 0.9]), added_s=58, a_run_s=10)
    assert why is not None
    assert why.startswith("the median of 7 runs is known only within 350%.")
    assert "The runs differ too much for more of them to help: stop other programs" in why
    assert "--precision-time" not in why


def test_runs_that_lack_tokens_are_valid_with_enough_repeats_and_with_them_alone() -> None:
    narrow = runs([0.1, 0.101, 0.099, 0.1, 0.102, 0.098, 0.1])
    judged = judged_together(narrow)
    assert all(each.verdict.valid for each in judged)
    assert "the median of 7 runs is known within 2.0%" in judged[0].notes[-1]
    (few, *_) = judged_together(narrow[:5])
    assert few.verdict.reasons == (
        "Imprecise: only 5 of at least 6 repeats. Allow more (--precision-time).",
    )
    assert judged_together(narrow[:1]) == narrow[:1]
    fixed = [each.model_copy(update={"place": None}) for each in narrow]
    assert judged_together(fixed) == fixed
    hot = run(0.1, "throttled", number=8)
    assert judged_together([*narrow, hot])[-1] == hot
    wide = runs([0.05, 0.2, 0.1, 0.3, 0.02, 0.1, 0.4])
    assert "known only within" in judged_together(wide)[0].verdict.reasons[0]


def of_a_sweep(figures: Sequence[float], *, cell: int = 0) -> list[Run]:
    """Return imprecise runs of a cell whose number was fixed."""
    made = [run(figure, "imprecise", number=100 * cell + n) for n, figure in enumerate(figures)]
    return [
        each.model_copy(update={"place": SweepPoint(sweep="s", cell=cell, round=number)})
        for number, each in enumerate(made)
    ]


def test_imprecise_runs_of_a_sweep_are_valid_with_four_repeats_of_their_cell() -> None:
    narrow, other = of_a_sweep([0.1, 0.101, 0.099, 0.1]), of_a_sweep([0.9], cell=1)
    *judged, alone = judged_together([*narrow, *other])
    assert all(each.verdict.valid for each in judged)
    assert "Valid with its repeats: the median of 4 runs" in judged[0].notes[-1]
    assert [alone] == other, "a run of another cell is no repeat"
    assert judged_together(narrow[:3]) == narrow[:3], "three say nothing of how runs differ"
    warmed_up = narrow[0].model_copy(
        update={"place": SweepPoint(sweep="s", cell=0, round=0, warm_up=True)}
    )
    assert judged_together([warmed_up, *narrow[1:]]) == [warmed_up, *narrow[1:]]


def test_repeats_of_a_sweep_that_differ_too_much_say_how_many_would_do() -> None:
    for each in judged_together(of_a_sweep([0.08, 0.1, 0.12, 0.1, 0.11])):
        (reason,) = each.verdict.reasons
        assert "the median of 5 runs is known only within" in reason
        assert "Use --repeats" in reason


def test_the_run_in_the_middle_stands_for_all() -> None:
    several = runs([0.3, 0.1, 0.2])
    assert middle(several) is several[2]
    hot = run(0.1, "throttled")
    assert middle([hot]) is hot


def test_an_interrupted_command_goes_on_with_its_repeats_and_a_finished_one_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = runs([0.1] * 6)
    first = SweepFolder.begin(grown_sweep("one"))
    for number, each in enumerate(made):
        found = SweepFolder.resume(grown_sweep("two"), Silent())
        assert found is not None
        assert found.sweep.id == first.sweep.id
        assert len(found.entries) == number
        store.save(each, runs_folder() / each.id)
        first.append(SweepEntry(cell=0, round=number, run=each.id, took_s=3))
    assert SweepFolder.resume(grown_sweep("two"), Silent()) is None


def test_the_time_that_is_said_to_be_needed_suffices_if_the_runs_take_somewhat_longer() -> None:
    ended = stop(runs([0.1]), WANTED, added_s=0, a_run_s=29)
    assert isinstance(ended, OutOfTime)
    allowed = Precision(share=0.05, added_s=ended.needed_s)
    longer_s = 29 * 1.4
    for number in range(1, 6):
        made = runs([0.1, 0.2, 0.1, 0.2, 0.1][:number])
        again = stop(made, allowed, added_s=longer_s * (number - 1), a_run_s=longer_s)
        assert again is None, f"after {number} runs"


def test_more_time_for_the_same_repeats_continues_those_that_ended_for_lack_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first = SweepFolder.begin(grown_sweep("one"))
    (made,) = runs([0.1])
    store.save(made, runs_folder() / made.id)
    first.append(SweepEntry(cell=0, round=0, run=made.id, took_s=30))
    long = made.model_copy(
        update={"id": f"{made.id}-2", "summary": made.summary.model_copy(update={"wall_s": 30})}
    )
    store.save(long, runs_folder() / long.id)
    first.append(SweepEntry(cell=0, round=1, run=long.id, took_s=30))
    assert SweepFolder.resume(grown_sweep("two"), Silent()) is None, "there is no time for it"
    longer = grown_sweep("three", Precision(share=0.05, added_s=240))
    found = SweepFolder.resume(longer, Silent())
    assert found is not None
    assert found.sweep.id == first.sweep.id
    assert found.sweep.precision == longer.precision
