"""Each slow token gets the cause that its columns show, and quick ones get none."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from armload.analysis.causes import causes
from armload.analysis.columns import Cores
from armload.engines.trace import Step

RECORDED = json.loads((Path(__file__).parent / "data" / "token_times.json").read_text())
USUAL_S = 0.1
QUICK_KHZ = 1_992_000


def a_step(
    number: int,
    duration_s: float,
    *,
    read_bytes: int | None = 0,
    faults: int = 0,
    busy: float = 2.0,
    switches: int = 0,
    khz: int = QUICK_KHZ,
    tokens: int = 1,
) -> Step:
    start_ns = number * 1_000_000_000
    return Step(
        step=number,
        tokens=tokens,
        prompt_tokens=0 if number else tokens,
        generated_tokens=tokens if number else 0,
        start_ns=start_ns,
        end_ns=start_ns + round(duration_s * 1e9),
        major_faults=faults,
        read_bytes=read_bytes,
        rss_bytes=100_000_000,
        cpu_ns=round(busy * duration_s * 1e9),
        involuntary_switches=switches,
        cpu_khz=(khz, khz) if khz else (),
    )


def a_run(odd: Step | None = None, *, count: int = 60) -> list[Step]:
    """Return steps that differ by 1%, one of them replaced."""
    chance = random.Random(1)
    steps = [a_step(0, 0.4, tokens=8)]
    steps += [a_step(n, USUAL_S * chance.gauss(1, 0.01)) for n in range(1, count)]
    if odd is not None:
        steps[odd.step] = odd
    return steps


@pytest.mark.parametrize(
    ("odd", "cause"),
    [
        (a_step(30, 0.2, read_bytes=16_000_000, faults=120, busy=1.0), "paging"),
        (a_step(30, 0.2, read_bytes=None, faults=500, busy=1.0), "paging"),
        (a_step(30, 0.15, khz=1_200_000), "throttling"),
        (a_step(30, 0.15, busy=1.3, switches=12), "contention"),
        (a_step(30, 0.15, busy=2.0, switches=12), "contention"),
        (a_step(30, 0.15, busy=1.3), "contention"),
        (a_step(30, 0.15), "unexplained"),
        (a_step(30, 0.15, khz=0), "unexplained"),
        (a_step(30, 0.15, read_bytes=4096, faults=1), "unexplained"),
        (a_step(1, 0.2, switches=5), "contention"),
        (a_step(59, 0.2, switches=5), "contention"),
        (a_step(30, 0.3, tokens=2, switches=8), "contention"),
    ],
)
def test_one_slow_token_gets_its_cause(odd: Step, cause: str) -> None:
    assert causes(a_run(odd)) == {odd.step: cause}


def test_reading_counts_by_what_the_storage_gives() -> None:
    odd = a_step(30, 0.2, read_bytes=4_000_000)
    assert causes(a_run(odd), storage_read_bytes_per_s=100_000_000) == {30: "paging"}
    assert causes(a_run(odd), storage_read_bytes_per_s=1_000_000_000) == {30: "unexplained"}


def test_a_steady_run_has_no_slow_tokens() -> None:
    assert causes(a_run()) == {}
    assert causes([a_step(n, USUAL_S) for n in range(40)]) == {}


def test_a_step_of_several_tokens_counts_per_token() -> None:
    assert causes(a_run(a_step(30, 2 * USUAL_S, tokens=2))) == {}


def test_few_steps_have_no_neighbours() -> None:
    assert causes([a_step(n, 0.1 if n != 5 else 1.0) for n in range(10)]) == {}
    assert causes([]) == {}


def test_a_token_is_slow_among_its_neighbours_even_where_the_context_grows() -> None:
    steps = [a_step(n, USUAL_S * (1 + n / 30)) for n in range(60)]
    steps[10] = a_step(10, 0.2, switches=9)
    assert causes(steps)[10] == "contention"


def test_a_growing_context_is_named_where_it_has_made_tokens_slow() -> None:
    found = causes([a_step(n, USUAL_S * (1 + n / 60)) for n in range(120)])
    assert set(found.values()) == {"context growth"}
    assert min(found) > 60


def test_a_lone_slow_token_is_not_the_context_even_where_that_grows() -> None:
    steps = [a_step(n, USUAL_S * (1 + n / 60)) for n in range(120)]
    steps[100] = a_step(100, 4 * USUAL_S)
    assert causes(steps)[100] == "unexplained"


def test_a_step_up_at_the_end_of_a_cache_block_is_the_context() -> None:
    found = causes([a_step(n, USUAL_S * (1 if n < 70 else 1.3)) for n in range(100)])
    assert set(found) == set(range(70, 100))
    assert set(found.values()) == {"context growth"}


def test_a_slow_stretch_in_the_middle_is_not_the_context() -> None:
    steps = [a_step(n, USUAL_S * (1.5 if 40 <= n < 60 else 1)) for n in range(100)]
    assert set(causes(steps).values()) == {"unexplained"}


def test_a_hot_second_half_is_throttling_and_not_the_context() -> None:
    steps = [
        a_step(n, USUAL_S * (1 if n < 60 else 1.4), khz=QUICK_KHZ if n < 60 else 1_416_000)
        for n in range(100)
    ]
    found = causes(steps)
    assert set(found) == set(range(60, 100))
    assert set(found.values()) == {"throttling"}


def test_cores_that_the_run_could_not_use_explain_no_slow_token() -> None:
    steps = a_run(a_step(30, 0.15))
    idle = [
        step.model_copy(update={"cpu_khz": (QUICK_KHZ, 408_000 if step.step == 30 else 2_400_000)})
        for step in steps
    ]
    little = Cores(reporting=(0, 4), allowed=frozenset({0}))
    assert causes(idle, little) == {30: "unexplained"}
    assert causes(idle) == {30: "throttling"}


def test_a_stretch_beside_another_program_is_contention() -> None:
    steps = [
        a_step(n, USUAL_S * (1 if n < 60 else 1.4), busy=2.0 if n < 60 else 1.4, switches=n // 60)
        for n in range(100)
    ]
    assert set(causes(steps).values()) == {"contention"}


def test_where_every_token_reads_storage_a_slow_one_is_paging() -> None:
    chance = random.Random(2)
    steps = [
        a_step(n, 18 * chance.gauss(1, 0.02), read_bytes=2_900_000_000, faults=20_000, busy=0.3)
        for n in range(40)
    ]
    steps[20] = a_step(20, 25, read_bytes=2_900_000_000, faults=20_000, busy=0.2)
    assert causes(steps, storage_read_bytes_per_s=165_000_000) == {20: "paging"}


def test_recorded_runs_of_a_growing_context_show_it_after_their_middle() -> None:
    early = late = 0
    for row in RECORDED["token_us"]:
        steps = [a_step(n, us / 1e6) for n, us in enumerate(row, start=1)]
        for number, cause in causes(steps).items():
            if cause == "context growth":
                early += number < len(row) / 2
                late += number >= len(row) / 2
    assert late > 100
    assert early < late / 10
