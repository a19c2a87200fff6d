"""A run's sentence names what limited it, and its verdict every reason for doubt."""

from __future__ import annotations

import pytest

from armload.bench.limit import find_limit
from armload.bench.plan import Plan
from armload.bench.run import BoardRecord, Exit, Limit, ModelRecord, Step
from armload.bench.verdict import doubts_about_text, judge
from tests.unit.samples import (
    board_record,
    conditions,
    model_record,
    step,
    steps_with_prompt,
    trace,
)


def limit_of(
    steps: list[Step],
    model: ModelRecord | None = None,
    board: BoardRecord | None = None,
    available: int = 1_800_000_000,
) -> Limit:
    return find_limit(
        steps,
        trace(),
        model=model or model_record(),
        board=board or board_record(),
        before=conditions(available=available),
    )


def test_the_seed_experiment_was_limited_by_storage() -> None:
    steps = [
        step(n, duration_s=18.18, read_bytes=2_900_000_000, busy_threads=0.3) for n in range(12)
    ]
    limit = limit_of(
        steps, model_record(3_000_000_000), board_record(storage=165_000_000), 1_700_000_000
    )
    assert limit.cause == "storage"
    assert "each token reads 2.9 GB at 159.5 MB/s" in limit.sentence
    assert "1.3 GB larger than the 1.7 GB of free memory" in limit.sentence
    assert "1.4 GB" in limit.advice


def test_storage_is_found_out_where_the_kernel_counts_no_bytes() -> None:
    steps = [
        step(n, duration_s=18.18, read_bytes=None, major_faults=20_000, busy_threads=0.3)
        for n in range(12)
    ]
    limit = limit_of(steps, model_record(3_000_000_000), available=1_700_000_000)
    assert limit.cause == "storage"
    assert "20,000 times" in limit.sentence


def test_busy_threads_that_read_most_of_the_bandwidth_are_limited_by_memory() -> None:
    steps = [step(n, duration_s=0.4) for n in range(9)]
    limit = limit_of(steps, model_record(1_100_000_000), board_record(memory_bytes_per_s=3 * 10**9))
    assert limit.cause == "memory bandwidth"
    assert "92% of this board's 3.0 GB/s" in limit.sentence


def test_busy_threads_that_read_little_are_limited_by_compute() -> None:
    limit = limit_of([step(n) for n in range(9)])
    assert limit.cause == "compute"
    assert "400.0 MB/s" in limit.sentence


def test_idle_cores_are_what_to_try_next() -> None:
    limit = limit_of([step(n) for n in range(9)], board=board_record(cores=4))
    assert limit.advice == "Try more threads: --threads 4."


def test_a_fast_board_of_unknown_bandwidth_gets_no_guess() -> None:
    limit = limit_of([step(n, duration_s=0.01) for n in range(9)])
    assert limit.cause == "unknown"
    assert "facts.memory_bytes_per_s" in limit.advice


def test_threads_that_wait_are_told_from_threads_that_work() -> None:
    limit = limit_of([step(n, busy_threads=0.6, involuntary_switches=40) for n in range(9)])
    assert limit.cause == "unknown"
    assert "40 involuntary switches" in limit.sentence


def test_a_run_without_tokens_says_so() -> None:
    assert limit_of([]).cause == "unknown"


ENDED_WELL = Exit(status=0, meaning="ended well")


def reasons(
    steps: tuple[Step, ...],
    *,
    n_predict: int = 3,
    text: str = "a little girl",
    ended: Exit = ENDED_WELL,
    boot_after: str = "boot-1",
    swap_after: int = 0,
) -> tuple[str, ...]:
    verdict = judge(
        Plan(n_predict=n_predict),
        ended=ended,
        header=trace(),
        steps=steps,
        text=text,
        before=conditions(),
        after=conditions(boot_id=boot_after, swap_used=swap_after),
    )
    assert verdict.valid == (not verdict.reasons)
    return verdict.reasons


def test_a_good_run_is_valid() -> None:
    assert reasons(steps_with_prompt([0.1, 0.1])) == ()


@pytest.mark.parametrize(
    ("found", "word"),
    [
        (reasons(steps_with_prompt([0.1])), "the trace holds 2"),
        (reasons(steps_with_prompt([0.1, 0.1]), text=" \n"), "white space"),
        (reasons(steps_with_prompt([0.1, 0.1]), boot_after="boot-2"), "rebooted"),
        (reasons(steps_with_prompt([0.1, 0.1]), swap_after=50 << 20), "50 MiB"),
        (reasons((), ended=Exit(status=132, meaning="died of SIGILL")), "SIGILL"),
    ],
)
def test_every_doubt_has_its_reason(found: tuple[str, ...], word: str) -> None:
    assert any(word in reason for reason in found), found


def test_a_run_that_something_disturbed_is_not_valid() -> None:
    steps = steps_with_prompt([0.1] * 18 + [1.0] * 4)
    (reason,) = reasons(steps, n_predict=23)
    assert "10.0 times the median" in reason


def test_tokens_that_read_storage_are_not_called_disturbed() -> None:
    prompt = step(0, phase="prompt", tokens=8)
    slow = [step(n, duration_s=2.0, read_bytes=10**8) for n in range(1, 6)]
    quick = [step(n) for n in range(6, 22)]
    assert reasons((prompt, *slow, *quick), n_predict=22) == ()


@pytest.mark.parametrize("text", ["x\ufffd\ufffdyz", "," * 60, "so: " + "!" * 24])
def test_garbage_is_found_out(text: str) -> None:
    assert doubts_about_text(text)


@pytest.mark.parametrize("text", ["Once upon a time.", "caf\ufffd", "...", "1, 2, 3, 4, 5, 6, 7"])
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert doubts_about_text(text) == []
