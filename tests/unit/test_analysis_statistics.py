"""Intervals hold what they promise, counted over draws from recorded times."""

from __future__ import annotations

import json
import math
import random
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

import pytest

from armload.analysis.statistics import (
    COSINES,
    FEWEST_TOKENS,
    RUN_TO_RUN,
    TAIL,
    Ratio,
    lower_bound,
    median_interval,
    own_doubt,
    ratio_of_runs,
    ratio_of_tokens,
    runs_to_detect,
    spread_of,
    surely_above,
    t_quantile,
    tokens_for_precision,
)

often = pytest.mark.exhaustive(covers=["armload/analysis/statistics.py"])

RECORDED = json.loads((Path(__file__).parent / "data" / "token_times.json").read_text())
BUSY_HOST: list[list[float]] = [[us / 1e6 for us in row] for row in RECORDED["token_us"]]

# Single tokens of Llama-3.1-8B Q2_K on a DAYU200 (RK3568, eMMC), from the experiment that this
# toolkit reproduces, in the order in which they came.
DAYU200_S = [16.78, 18.19, 17.76, 19.22, 19.16, 17.86, 18.62, 17.92, 18.30, 18.31, 18.20, 17.62]
DRAWS = 100
TOKENS = 64

Rows = list[list[float]]


def busy_host_rows(chance: random.Random, runs: int) -> Rows:
    return [chance.choice(BUSY_HOST) for _ in range(runs)]


def dayu200_rows(chance: random.Random, runs: int) -> Rows:
    """Runs made of the board's tokens, each run as a whole 1% faster or slower than another."""
    rows = []
    for _ in range(runs):
        level = chance.gauss(1.0, 0.01)
        rows.append([level * chance.choice(DAYU200_S) for _ in range(TOKENS)])
    return rows


def slower(rows: Rows, times: float) -> Rows:
    return [[times * each for each in row] for row in rows]


@pytest.mark.parametrize("runs", [4, pytest.param(10, marks=often)])
@pytest.mark.parametrize("draw", [busy_host_rows, dayu200_rows])
def test_two_sets_of_the_same_program_show_no_difference(
    draw: Callable[[random.Random, int], Rows], runs: int
) -> None:
    chance = random.Random(runs)
    none_seen = 0
    for _ in range(DRAWS):
        ratio = ratio_of_tokens(draw(chance, runs), draw(chance, runs))
        assert ratio.unit == "runs"
        none_seen += ratio.low <= 1 <= ratio.high
    assert none_seen >= 95


def ratios_of_cells(chance: random.Random, cells: int, runs: int) -> list[Ratio]:
    """Compare cells whose two sides are equal, with runs that differ by 1%."""
    return [
        ratio_of_runs(*([chance.gauss(1, 0.01) for _ in range(runs)] for _ in range(2)))
        for _ in range(cells)
    ]


def cells_above(limit: float, ratios: list[Ratio], runs: int) -> list[int]:
    return surely_above(limit, [partial(lower_bound, ratio, runs) for ratio in ratios])


@pytest.mark.parametrize("runs", [4, pytest.param(10, marks=often)])
def test_of_twenty_equal_cells_chance_makes_any_slower_in_2_5_of_100_comparisons(runs: int) -> None:
    chance = random.Random(13)
    alone = together = 0
    for _ in range(150):
        ratios = ratios_of_cells(chance, 20, runs)
        alone += any(ratio.low > 1 for ratio in ratios)
        together += bool(cells_above(1, ratios, runs))
    assert alone >= 9, "each by its own interval"
    assert together <= 6


def test_a_cell_that_is_ten_percent_slower_is_found_among_twenty_with_four_repeats() -> None:
    chance = random.Random(14)
    found = []
    for _ in range(40):
        a, b = ([chance.gauss(level, 0.01) for _ in range(4)] for level in (1, 1.1))
        found.append(cells_above(1, [*ratios_of_cells(chance, 19, 4), ratio_of_runs(a, b)], 4))
    assert found.count([19]) >= 32


@pytest.mark.parametrize("runs", [1, 4, 10])
def test_a_rarer_error_takes_a_lower_bound_beyond_the_samples(runs: int) -> None:
    chance = random.Random(15)
    (ratio,) = ratios_of_cells(chance, 1, runs)
    assert lower_bound(ratio, runs, TAIL) == pytest.approx(ratio.low)
    bounds = [lower_bound(ratio, runs, TAIL / count) for count in (1, 2, 5, 20)]
    assert bounds == sorted(set(bounds), reverse=True)


def test_the_bound_of_requests_reaches_as_far_as_their_own_error_does() -> None:
    error = 0.03  # of the ratio's logarithm

    def low(tail: float) -> float:
        return 1.2 / math.exp(t_quantile(1 - tail, COSINES) * error) / (1 + RUN_TO_RUN)

    ratio = Ratio(ratio=1.2, low=low(TAIL), high=1.2**2 / low(TAIL), unit="requests")
    for count in (1, 2, 5, 20):
        assert lower_bound(ratio, 1, TAIL / count) == pytest.approx(low(TAIL / count))


def test_few_runs_get_an_interval_that_holds_all_the_same() -> None:
    chance = random.Random(11)
    held = 0
    for _ in range(400):
        a, b = ([chance.gauss(1, 0.01) for _ in range(6)] for _ in range(2))
        ratio = ratio_of_runs(a, b)
        held += ratio.low <= 1 <= ratio.high
    assert held >= 390


def test_single_runs_of_the_same_program_show_no_difference() -> None:
    chance = random.Random(1)
    ratios = [ratio_of_tokens(dayu200_rows(chance, 1), dayu200_rows(chance, 1)) for _ in range(100)]
    assert all(ratio.unit == "tokens" for ratio in ratios)
    assert sum(ratio.low <= 1 <= ratio.high for ratio in ratios) >= 95


def test_a_slow_down_of_three_percent_is_found_with_ten_repeats() -> None:
    chance = random.Random(2)
    found = 0
    for _ in range(DRAWS):
        ratio = ratio_of_tokens(dayu200_rows(chance, 10), slower(dayu200_rows(chance, 10), 1.03))
        found += ratio.low > 1
    assert found >= 95


def test_the_interval_holds_the_true_ratio() -> None:
    chance = random.Random(3)
    held = 0
    for _ in range(DRAWS):
        ratio = ratio_of_tokens(dayu200_rows(chance, 6), slower(dayu200_rows(chance, 6), 1.1))
        held += ratio.low <= 1.1 <= ratio.high
    assert held >= 95


def test_a_large_slow_down_is_found_even_without_repeats() -> None:
    chance = random.Random(4)
    ratio = ratio_of_tokens(dayu200_rows(chance, 1), slower(dayu200_rows(chance, 1), 1.3))
    assert ratio.low > 1


def test_what_changes_in_the_course_of_a_run_widens_the_interval_of_few_runs() -> None:
    chance = random.Random(11)
    steady = [chance.gauss(0.1, 0.001) for _ in range(64)]
    busy_later = steady[:32] + [time * 1.25 for time in steady[32:48]] + steady[48:]
    assert ratio_of_tokens([steady], slower([steady], 1.1)).low > 1
    disturbed = ratio_of_tokens([steady], slower([busy_later], 1.1))
    assert disturbed.low < 1 < disturbed.high


def test_three_runs_a_side_are_too_few_to_draw_from() -> None:
    assert ratio_of_runs([1.0, 1.01, 1.02], [1.03, 1.04, 1.05]).low < 1


def test_what_repeats_show_widens_the_interval_of_few_runs() -> None:
    calm = ratio_of_runs([1.0, 1.0], [1.0, 1.0])
    wild = ratio_of_runs([1.0, 1.4], [1.2, 1.2])
    assert calm.high == pytest.approx(1 + RUN_TO_RUN)
    assert wild.high / wild.ratio == pytest.approx(1.4)


def test_a_growing_context_does_not_hide_a_difference() -> None:
    chance = random.Random(5)
    rows = [[0.1 * (1 + n / 40) * chance.gauss(1, 0.01) for n in range(127)] for _ in range(2)]
    ratio = ratio_of_tokens([rows[0]], slower([rows[1]], 1.08))
    assert ratio.low > 1
    assert ratio.high / ratio.low < 1.06 * (1 + RUN_TO_RUN) ** 2  # unpaired: 1.5


def test_only_tokens_that_all_runs_have_are_compared() -> None:
    growing = [0.1 + n / 1000 for n in range(100)]
    ratio = ratio_of_tokens([growing], [growing[:50]])
    assert ratio.ratio == 1


def test_the_same_samples_give_the_same_interval() -> None:
    rows = busy_host_rows(random.Random(6), 8)
    assert ratio_of_tokens(rows[:4], rows[4:]) == ratio_of_tokens(rows[:4], rows[4:])
    assert median_interval(rows[0]) == median_interval(rows[0])


def test_a_median_lies_within_its_interval_which_shrinks_with_more_tokens() -> None:
    chance = random.Random(7)
    few = [chance.gauss(0.1, 0.01) for _ in range(30)]
    many = [chance.gauss(0.1, 0.01) for _ in range(600)]
    narrow, wide = median_interval(many), median_interval(few)
    assert narrow is not None
    assert wide is not None
    assert wide.low <= median(few) <= wide.high
    assert narrow.high - narrow.low < (wide.high - wide.low) / 2


def test_intervals_of_alike_neighbours_are_wider_than_those_of_unrelated_ones() -> None:
    chance = random.Random(8)
    background_processes = [chance.gauss(0.1, 0.01) for _ in range(225)]
    alike = [value for value in background_processes[:15] for _ in range(15)]
    one, other = median_interval(background_processes), median_interval(alike)
    assert one is not None
    assert other is not None
    assert other.high - other.low > 2 * (one.high - one.low)


def test_a_steady_rise_is_no_doubt_about_the_median() -> None:
    found = median_interval([0.1 + n / 1000 for n in range(100)])
    assert found is not None
    assert found.high - found.low < 1e-9


def test_the_interval_of_an_evaluations_tokens_takes_bounded_memory() -> None:
    chance = random.Random(12)
    few = [chance.gauss(0.1, 0.01) for _ in range(2000)]
    many = few + [chance.gauss(0.1, 0.01) for _ in range(298_000)]
    tracemalloc.start()
    found = median_interval(many)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 200e6
    fewer = median_interval(few)
    assert found is not None
    assert fewer is not None
    assert found.low < median(many) < found.high
    assert found.high - found.low < (fewer.high - fewer.low) / 8  # by tokens alone, a 12th


def test_few_tokens_say_nothing_about_their_spread() -> None:
    assert median_interval([0.1] * (FEWEST_TOKENS - 1)) is None


def test_more_spread_takes_more_repeats() -> None:
    assert runs_to_detect(0.03, 0.0) == 4
    assert runs_to_detect(0.03, 0.01) < runs_to_detect(0.03, 0.02) < runs_to_detect(0.01, 0.02)
    assert spread_of([1.0]) == 0.0
    assert spread_of([0.99, 1.01]) == pytest.approx(0.0141, abs=1e-4)


@pytest.mark.parametrize(
    ("degrees", "at_975", "at_995"),
    [
        (1, 12.706, 63.657),
        (2, 4.303, 9.925),
        (3, 3.182, 5.841),
        (4, 2.776, 4.604),
        (9, 2.262, 3.250),
        (30, 2.042, 2.750),
        (120, 1.980, 2.617),
    ],
)
def test_quantiles_of_student_s_t_are_those_of_the_tables(
    degrees: int, at_975: float, at_995: float
) -> None:
    assert t_quantile(0.975, degrees) == pytest.approx(at_975, abs=6e-4)
    assert t_quantile(0.995, degrees) == pytest.approx(at_995, abs=6e-4)


def test_the_repeats_that_are_advised_see_the_difference() -> None:
    chance = random.Random(9)
    rows = dayu200_rows(chance, 200)
    needed = runs_to_detect(0.03, spread_of([median(row) for row in rows]))
    found = 0
    for _ in range(DRAWS):
        a = dayu200_rows(chance, needed)
        found += ratio_of_tokens(a, slower(dayu200_rows(chance, needed), 1.03)).low > 1
    assert found >= 70


def test_more_tokens_are_asked_for_where_the_median_is_not_known() -> None:
    chance = random.Random(10)
    wild = [chance.choice([0.1, 0.1, 0.16]) * chance.gauss(1, 0.05) for _ in range(20)]
    assert tokens_for_precision(wild, 0.01) > 100
    assert tokens_for_precision([0.1] * 20, 0.05) == 20


HASTY = (
    [0.0105, 0.0143, 0.0068, 0.0066, 0.0066, 0.0066, 0.0068],
    [0.0891, 0.0260, 0.0547, 0.0410, 0.0372, 0.0642, 0.2077],
    [0.0164, 0.0121, 0.0121, 0.0097, 0.0081, 0.0064, 0.0071],
)
"""Three runs of one command on a virtual board whose workstation was busy."""


def test_runs_of_few_tokens_are_told_apart_only_where_all_tokens_are() -> None:
    quiet, disturbed, third = HASTY
    assert ratio_of_tokens([quiet], [third]).low < 1 < ratio_of_tokens([quiet], [third]).high
    apart = ratio_of_tokens([quiet], [disturbed])
    assert apart.low == pytest.approx(min(disturbed) / max(quiet) / (1 + RUN_TO_RUN))
    assert apart.high == pytest.approx(max(disturbed) / min(quiet) * (1 + RUN_TO_RUN))
    assert apart.unit == "tokens"


@pytest.mark.parametrize("tokens", [1, 2, 3])
def test_three_tokens_tell_nothing(tokens: int) -> None:
    found = ratio_of_tokens([[0.1] * tokens], [[0.9] * tokens])
    assert found.low <= 1 <= found.high
    assert found.ratio == pytest.approx(9)
    assert found.unit == "none"


def test_a_run_is_in_doubt_as_far_as_its_own_tokens_are() -> None:
    assert own_doubt([0.1] * 20) == pytest.approx(1)
    assert own_doubt([0.1, 0.2, 0.3]) == pytest.approx(2)
    known = median_interval(BUSY_HOST[0])
    assert known is not None
    middle = median(BUSY_HOST[0])
    assert own_doubt(BUSY_HOST[0]) == max(known.high / middle, middle / known.low) > 1
