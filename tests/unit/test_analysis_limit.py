"""What limited a run's speed."""

from __future__ import annotations

import pytest

from armload.analysis.limit import find_limit
from armload.analysis.run import Limit
from armload.engines.job import BoardRecord, ModelRecord, RateKind
from armload.engines.trace import Step
from tests.unit.samples import (
    board_record,
    conditions,
    model_record,
    step,
    trace,
)


def limit_of(
    steps: list[Step],
    model: ModelRecord | None = None,
    board: BoardRecord | None = None,
    available: int = 1_800_000_000,
    cpus: str | None = None,
) -> Limit:
    return find_limit(
        steps,
        trace(),
        model=model or model_record(),
        board=board or board_record(),
        before=conditions(available=available),
        cpus=cpus,
    )


def test_the_seed_experiment_was_limited_by_storage() -> None:
    steps = [
        step(n, duration_s=18.18, read_bytes=2_900_000_000, busy_threads=0.3) for n in range(12)
    ]
    limit = limit_of(
        steps, model_record(3_000_000_000), board_record(storage=165_000_000), 1_700_000_000
    )
    assert limit.cause == "storage"
    assert (
        "each token reads 2.9 GB at 159.5 MB/s, 97% of this board's 165.0 MB/s;" in limit.sentence
    )
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


def test_storage_that_takes_much_of_the_time_limits_however_few_of_the_weights_it_reads() -> None:
    steps = [step(n, duration_s=1.6, read_bytes=120_000_000, busy_threads=1.1) for n in range(12)]
    board = board_record(storage=165_000_000, storage_rate="measured")
    limit = limit_of(steps, model_record(3_000_000_000), board, available=3_100_000_000)
    assert limit.cause == "storage"
    assert (
        "each token reads 120.0 MB at 75.0 MB/s, 45% of the measured 165.0 MB/s" in limit.sentence
    )


def test_storage_that_takes_little_of_the_time_does_not_limit_and_is_told() -> None:
    few = [step(n, duration_s=1.6, read_bytes=20_000_000) for n in range(12)]
    fast = board_record(storage=3_000_000_000, memory_bytes_per_s=3 * 10**9)
    model = model_record(400_000_000)
    computing = limit_of(few, model, fast)
    assert computing.cause == "compute"
    assert "reading storage took less than 1% of the time (20.0 MB per token)" in computing.sentence
    memory = limit_of(few, model_record(3_000_000_000), fast)
    assert memory.cause == "memory bandwidth"
    unknown = limit_of(
        [step(n, duration_s=0.01, read_bytes=20_000 * (n == 5)) for n in range(9)],
        board=board_record(storage=165_000_000),
    )
    assert unknown.cause == "unknown"
    assert "storage took less than 1% of the time (2.2 kB per token)" in unknown.sentence


def test_nothing_was_read_only_where_no_token_read_anything() -> None:
    waiting = [
        step(n, busy_threads=1.0, involuntary_switches=9, read_bytes=3_000_000 * (n % 2))
        for n in range(9)
    ]
    limit = limit_of(waiting, board=board_record(storage=165_000_000))
    assert limit.cause == "unknown"
    assert (
        "ran only 50% of the time and reading storage took about 8% of the time" in limit.sentence
    )
    uncounted = [step(n, read_bytes=None, major_faults=4) for n in range(9)]
    board = board_record(storage=165_000_000)
    assert "(4.0 major faults per token)" in limit_of(uncounted, board=board).sentence
    quiet = limit_of([step(n) for n in range(9)])
    assert "nothing was read from storage" in quiet.sentence


def test_a_control_group_s_limit_is_named_by_the_limit_of_the_speed() -> None:
    inside = conditions(available=440_000_000).model_copy(
        update={"memory_limit_bytes": 471_859_200}
    )
    limit = find_limit(
        [step(n, duration_s=3.0, read_bytes=490_000_000) for n in range(12)],
        trace(),
        model=model_record(529_000_000),
        board=board_record(storage=165_000_000),
        before=inside,
    )
    assert "the model is 89.0 MB larger than the 440.0 MB of free memory" in limit.sentence
    assert "(a control group is limited to 471.9 MB)" in limit.sentence
    assert limit.advice.startswith("Use a model file smaller than 352.0 MB")


def test_a_model_that_fits_and_is_read_again_is_not_told_to_be_smaller() -> None:
    reading = [step(n, duration_s=3.0, read_bytes=490_000_000) for n in range(12)]
    limit = limit_of(reading, model_record(529_000_000), available=24_500_000_000)
    assert limit.cause == "storage"
    assert "Use a model" not in limit.advice
    assert "The model fitted before the run" in limit.advice


def test_busy_threads_that_read_most_of_the_bandwidth_are_limited_by_memory() -> None:
    steps = [step(n, duration_s=0.4) for n in range(9)]
    limit = limit_of(steps, model_record(1_100_000_000), board_record(memory_bytes_per_s=3 * 10**9))
    assert limit.cause == "memory bandwidth"
    assert "92% of this board's 3.0 GB/s" in limit.sentence


@pytest.mark.parametrize("kind", ["measured", "declared"])
def test_a_rate_is_said_to_be_measured_or_declared(kind: RateKind) -> None:
    board = board_record(
        memory_bytes_per_s=3 * 10**9, memory_rate=kind, storage=165_000_000, storage_rate=kind
    )
    steps = [step(n, duration_s=0.4) for n in range(9)]
    assert (
        f"92% of the {kind} 3.0 GB/s"
        in limit_of(steps, model_record(1_100_000_000), board).sentence
    )
    reading = [step(n, duration_s=18.18, read_bytes=2_900_000_000) for n in range(12)]
    waited = limit_of(reading, model_record(3_000_000_000), board)
    assert f"97% of the {kind} 165.0 MB/s" in waited.sentence


def test_more_threads_than_the_chosen_cores_are_not_advised() -> None:
    busy = [step(n) for n in range(9)]
    limit = limit_of(busy, board=board_record(cores=8), cpus="4,5")
    assert limit.advice == "Try more cores than --cpus 4,5."


def test_busy_threads_that_read_little_are_limited_by_compute() -> None:
    limit = limit_of([step(n) for n in range(9)])
    assert limit.cause == "compute"
    assert "400.0 MB/s, while even the slowest board's memory gives 1.5 GB/s." in limit.sentence


def test_what_the_memory_gives_stands_beside_what_the_weights_took() -> None:
    board = board_record(memory_bytes_per_s=3 * 10**9, memory_rate="measured")
    limit = limit_of([step(n) for n in range(9)], board=board)
    assert limit.cause == "compute"
    assert "400.0 MB/s, while the memory gives the measured 3.0 GB/s." in limit.sentence


def test_no_core_is_busy_for_more_than_all_of_the_time() -> None:
    limit = limit_of([step(n, busy_threads=2.02) for n in range(9)])
    assert "2 of 2 cores were busy 100% of the time" in limit.sentence


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
    assert "waited for each other" in limit.sentence


def test_a_single_thread_waits_for_no_other() -> None:
    steps = [step(n, busy_threads=0.6, involuntary_switches=40) for n in range(9)]
    one = find_limit(
        steps,
        trace().model_copy(update={"threads": 1}),
        model=model_record(),
        board=board_record(),
        before=conditions(),
    )
    assert "1 thread ran only 60% of the time" in one.sentence
    assert "it was preempted (40" in one.sentence
    assert "each other" not in one.sentence
    assert "fewer threads" not in one.advice
    busy = find_limit(
        [step(n, busy_threads=1.0) for n in range(9)],
        trace().model_copy(update={"threads": 1}),
        model=model_record(),
        board=board_record(),
        before=conditions(),
    )
    assert "1 of 2 cores was busy" in busy.sentence


def test_a_run_without_tokens_says_so() -> None:
    assert limit_of([]).cause == "unknown"
