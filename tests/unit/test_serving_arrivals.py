"""Schedules and lengths: as distributed as they say, and the same for the same seed."""

from __future__ import annotations

import math
import random
from itertools import pairwise
from statistics import fmean, median, pstdev

import pytest

from armload.core.errors import UsageError
from armload.serving.arrivals import Arrivals, read_arrivals, read_stages
from armload.serving.workload import read_lengths


def gaps(text: str, rate: float, seed: int = 1, count: int = 20_000) -> list[float]:
    times = read_arrivals(text).schedule(rate, duration_s=None, requests=count, seed=seed)
    return [after - before for before, after in pairwise(times)]


@pytest.mark.parametrize(
    ("text", "variation"),
    [("poisson", 1.0), ("constant", 0.0), ("gamma:0.25", 2.0), ("gamma:4", 0.5)],
)
def test_gaps_have_the_mean_of_the_rate_and_the_spread_of_their_kind(
    text: str, variation: float
) -> None:
    found = gaps(text, 5.0)
    assert fmean(found) == pytest.approx(0.2, rel=0.05)
    assert pstdev(found) / fmean(found) == pytest.approx(variation, abs=0.07)


def test_the_seeds_gaps_are_whole_milliseconds_around_the_rounded_gap() -> None:
    found = gaps("seed", 6.0)
    assert fmean(found) == pytest.approx(0.17, rel=0.01)  # round(1 / 6, 2)
    assert pstdev(found) == pytest.approx(math.sqrt(170) / 1000, rel=0.05)
    assert all(abs(1000 * gap - round(1000 * gap)) < 1e-6 for gap in found)


def test_the_seeds_load_has_int_of_time_and_rate_requests_and_begins_at_once() -> None:
    times = Arrivals(kind="seed").schedule(0.7, duration_s=10.0, requests=None, seed=3)
    assert len(times) == 7
    assert times[0] == 0.0


def test_a_schedule_is_in_order_and_ends_with_its_time() -> None:
    times = Arrivals().schedule(20.0, duration_s=30.0, requests=None, seed=1)
    assert list(times) == sorted(times)
    assert times[0] >= 0
    assert times[-1] < 30.0
    assert len(times) == pytest.approx(600, abs=100)


def test_a_number_of_requests_and_a_time_both_limit_a_schedule() -> None:
    constant = Arrivals(kind="constant")
    assert len(constant.schedule(10.0, duration_s=2.0, requests=5, seed=1)) == 5
    assert len(constant.schedule(10.0, duration_s=2.0, requests=500, seed=1)) == 20


@pytest.mark.parametrize(
    ("rate", "duration_s", "count"),
    [(10.0, 10.0, 100), (1.5, 60.0, 90), (0.07, 100.0, 7), (1.1, 30.0, 33), (0.3, 9.0, 3)],
)
def test_constant_arrivals_do_not_drift_past_the_end(
    rate: float, duration_s: float, count: int
) -> None:
    constant = Arrivals(kind="constant")
    times = constant.schedule(rate, duration_s=duration_s, requests=None, seed=1)
    assert len(times) == count
    (stage,) = read_stages([f"{rate}:{duration_s}"])
    assert constant.staged([stage], seed=1) == pytest.approx(times)


def test_constant_arrivals_do_not_drift_past_the_warmup() -> None:
    times = Arrivals(kind="constant").schedule(10.0, duration_s=60.0, requests=None, seed=1)
    assert sum(time_s < 10.0 for time_s in times) == 100


def test_a_seed_gives_the_same_schedule_and_another_a_different_one() -> None:
    assert gaps("poisson", 2.0, 7, 50) == gaps("poisson", 2.0, 7, 50)
    assert gaps("poisson", 2.0, 7, 50) != gaps("poisson", 2.0, 8, 50)


def test_a_schedule_that_a_release_of_numpy_must_not_change() -> None:
    times = Arrivals().schedule(1.0, duration_s=None, requests=3, seed=1)
    assert times == pytest.approx((0.5396, 1.8137, 1.8138), abs=1e-4)


@pytest.mark.parametrize("rate_and_time", [(0.001, 1.0), (5000.0, 3600.0)])
def test_a_load_without_requests_or_with_too_many_is_refused(
    rate_and_time: tuple[float, float],
) -> None:
    rate, duration_s = rate_and_time
    with pytest.raises(UsageError, match="request"):
        Arrivals(kind="seed").schedule(rate, duration_s=duration_s, requests=None, seed=1)


@pytest.mark.parametrize(
    "text", ["", "random", "poisson:2", "gamma", "gamma:", "gamma:0", "gamma:-1", "gamma:nan"]
)
def test_arrivals_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--arrivals"):
        read_arrivals(text)


@pytest.mark.parametrize("text", ["poisson", "constant", "gamma:0.5", "seed"])
def test_arrivals_are_written_as_they_are_read(text: str) -> None:
    assert str(read_arrivals(text)) == text


@pytest.mark.parametrize("text", ["128", "uniform:16-128", "lognormal:100:0.8"])
def test_lengths_are_distributed_as_they_are_written(text: str) -> None:
    lengths, generator = read_lengths("prompt-tokens", text), random.Random(1)
    drawn = [lengths.draw(generator) for _ in range(5000)]
    assert str(lengths) == text
    assert min(drawn) >= 1
    if lengths.kind == "constant":
        assert set(drawn) == {128}
    elif lengths.kind == "uniform":
        assert (min(drawn), max(drawn)) == (16, 128)
        assert fmean(drawn) == pytest.approx(72, rel=0.05)
    else:
        assert median(drawn) == pytest.approx(100, rel=0.05)
        assert pstdev([math.log(each) for each in drawn]) == pytest.approx(0.8, rel=0.05)


@pytest.mark.parametrize(
    "text",
    [
        *("", "0", "-1", "1.5", "many", "9999999999", "uniform:5-2", "uniform:0-2"),
        *("lognormal:100", "lognormal:0:1", "lognormal:100:0", "lognormal:100:9"),
        "lognormal:1.2.3:1",
    ],
)
def test_lengths_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--n-predict"):
        read_lengths("n-predict", text)
