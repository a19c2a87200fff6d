"""What limited a run's speed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from armload.analysis.device_clocks import ClockUse, TimeAtClock
from armload.analysis.limit import find_limit
from armload.analysis.limit_findings import (
    BandwidthLimit,
    ComputeLimit,
    GroupLimit,
    IdleThreads,
    Limit,
    LimitFinding,
    NothingDecoded,
    SharedLimit,
    StorageLimit,
    StorageReads,
    UnknownBandwidth,
)
from armload.analysis.members import MemberSample, NodeActivity, ServerLoad
from armload.engines.job import BoardRecord, ModelRecord, RateKind
from armload.engines.prediction import GroupForecast, PartTime
from armload.engines.spread import Share, Spread
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
    spread: Spread | None = None,
    servers: Sequence[ServerLoad] = (),
    forecast: GroupForecast | None = None,
) -> LimitFinding:
    return find_limit(
        steps,
        trace(),
        model=model or model_record(),
        board=board or board_record(),
        before=conditions(available=available),
        cpus=cpus,
        spread=spread,
        servers=servers,
        forecast=forecast,
    )


def test_the_seed_experiment_was_limited_by_storage() -> None:
    steps = [
        step(n, duration_s=18.18, read_bytes=2_900_000_000, busy_threads=0.3) for n in range(12)
    ]
    limit = limit_of(
        steps, model_record(3_000_000_000), board_record(storage=165_000_000), 1_700_000_000
    )
    assert limit == StorageLimit(
        has_single_tokens=True,
        pass_s=18.18,
        read_bytes_per_pass=2.9e9,
        faults_per_pass=0,
        storage_bytes_per_s=165_000_000,
        storage_rate=None,
        free_bytes=1_700_000_000,
        memory_limit_bytes=None,
        held_bytes=None,
        weights_bytes=None,
        model_bytes=3_000_000_000,
    )


def test_storage_is_found_out_where_the_kernel_counts_no_bytes() -> None:
    steps = [
        step(n, duration_s=18.18, read_bytes=None, major_faults=20_000, busy_threads=0.3)
        for n in range(12)
    ]
    limit = limit_of(steps, model_record(3_000_000_000), available=1_700_000_000)
    assert isinstance(limit, StorageLimit)
    assert (limit.read_bytes_per_pass, limit.faults_per_pass) == (None, 20_000)


def test_storage_that_takes_much_of_the_time_limits_however_few_of_the_weights_it_reads() -> None:
    steps = [step(n, duration_s=1.6, read_bytes=120_000_000, busy_threads=1.1) for n in range(12)]
    board = board_record(storage=165_000_000, storage_rate="measured")
    limit = limit_of(steps, model_record(3_000_000_000), board, available=3_100_000_000)
    assert isinstance(limit, StorageLimit)
    assert (limit.read_bytes_per_pass, limit.pass_s) == (120_000_000, 1.6)
    assert (limit.storage_bytes_per_s, limit.storage_rate) == (165_000_000, "measured")


def test_storage_that_takes_little_of_the_time_does_not_limit_and_is_told() -> None:
    few = [step(n, duration_s=1.6, read_bytes=20_000_000) for n in range(12)]
    fast = board_record(storage=3_000_000_000, memory_bytes_per_s=3 * 10**9)
    computing = limit_of(few, model_record(400_000_000), fast)
    assert isinstance(computing, ComputeLimit)
    assert computing.reads.bytes_per_token == 20_000_000
    assert computing.reads.time_share < 0.01
    memory = limit_of(few, model_record(3_000_000_000), fast)
    assert isinstance(memory, BandwidthLimit)
    unknown = limit_of(
        [step(n, duration_s=0.01, read_bytes=20_000 * (n == 5)) for n in range(9)],
        board=board_record(storage=165_000_000),
    )
    assert isinstance(unknown, UnknownBandwidth)
    assert unknown.reads.bytes_per_token == pytest.approx(20_000 / 9)


def test_nothing_was_read_only_where_no_token_read_anything() -> None:
    waiting = [
        step(n, busy_threads=1.0, involuntary_switches=9, read_bytes=3_000_000 * (n % 2))
        for n in range(9)
    ]
    limit = limit_of(waiting, board=board_record(storage=165_000_000))
    assert isinstance(limit, IdleThreads)
    assert limit.busy_share == pytest.approx(0.5)
    assert limit.reads.time_share == pytest.approx(0.08, abs=0.005)
    uncounted = [step(n, read_bytes=None, major_faults=4) for n in range(9)]
    computing = limit_of(uncounted, board=board_record(storage=165_000_000))
    assert isinstance(computing, ComputeLimit)
    assert (computing.reads.bytes_per_token, computing.reads.faults_per_token) == (None, 4)
    quiet = limit_of([step(n) for n in range(9)])
    assert isinstance(quiet, ComputeLimit)
    assert quiet.reads == StorageReads()


def test_a_control_group_s_limit_is_part_of_the_limit_of_the_speed() -> None:
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
    assert isinstance(limit, StorageLimit)
    assert (limit.model_bytes, limit.free_bytes) == (529_000_000, 440_000_000)
    assert limit.memory_limit_bytes == 471_859_200


def test_busy_threads_that_read_most_of_the_bandwidth_are_limited_by_memory() -> None:
    steps = [step(n, duration_s=0.4) for n in range(9)]
    limit = limit_of(steps, model_record(1_100_000_000), board_record(memory_bytes_per_s=3 * 10**9))
    assert limit == BandwidthLimit(
        has_single_tokens=True,
        weights_bytes=1_100_000_000,
        weights_bytes_per_s=2.75e9,
        memory_bytes_per_s=3 * 10**9,
        memory_rate=None,
    )


@pytest.mark.parametrize(
    ("run_mhz", "measured_mhz", "mhz"),
    [
        (528, 2112, 528),
        (2112, 2112, None),
        (2100, 2112, None),
        (528, None, None),
        (None, 2112, None),
    ],
)
def test_memory_at_another_clock_than_it_was_measured_at_gives_another_rate(
    run_mhz: int | None, measured_mhz: int | None, mhz: int | None
) -> None:
    board = board_record(memory_bytes_per_s=25 * 10**9, memory_rate="measured").model_copy(
        update={"memory_clock_hz": measured_mhz and measured_mhz * 1_000_000}
    )
    clock = ClockUse(
        name="dmc",
        kind="memory",
        phase="decode",
        times=(TimeAtClock(hz=(run_mhz or 0) * 1_000_000, share=1),),
    )
    limit = find_limit(
        [step(n, duration_s=0.2) for n in range(9)],
        trace(),
        model=model_record(1_100_000_000),  # 5.5 GB/s
        board=board,
        before=conditions(),
        device_clocks=(clock,) if run_mhz else (),
    )
    if mhz is None:
        assert isinstance(limit, ComputeLimit)
        assert (limit.memory_bytes_per_s, limit.memory_mhz) == (25 * 10**9, None)
    else:
        assert isinstance(limit, BandwidthLimit)
        assert (limit.memory_bytes_per_s, limit.memory_mhz) == (6_250_000_000, mhz)
        assert limit.fact().endswith(
            "88% of the measured 6.2 GB/s, scaled to the run's memory clock of 528 MHz."
        )


@pytest.mark.parametrize("kind", ["measured", "declared"])
def test_a_rate_is_measured_or_declared(kind: RateKind) -> None:
    board = board_record(
        memory_bytes_per_s=3 * 10**9, memory_rate=kind, storage=165_000_000, storage_rate=kind
    )
    steps = [step(n, duration_s=0.4) for n in range(9)]
    limit = limit_of(steps, model_record(1_100_000_000), board)
    assert isinstance(limit, BandwidthLimit)
    assert limit.memory_rate == kind
    reading = [step(n, duration_s=18.18, read_bytes=2_900_000_000) for n in range(12)]
    waited = limit_of(reading, model_record(3_000_000_000), board)
    assert isinstance(waited, StorageLimit)
    assert waited.storage_rate == kind


def test_the_cores_that_the_engine_was_kept_to_are_counted() -> None:
    limit = limit_of([step(n) for n in range(9)], board=board_record(cores=8), cpus="4,5")
    assert isinstance(limit, ComputeLimit)
    assert (limit.cores, limit.cpus, limit.cpus_cores) == (8, "4,5", 2)


def test_busy_threads_that_read_little_are_limited_by_compute() -> None:
    limit = limit_of([step(n) for n in range(9)])
    assert isinstance(limit, ComputeLimit)
    assert limit.weights_bytes_per_s == pytest.approx(400_000_000)
    assert limit.memory_bytes_per_s is None
    board = board_record(memory_bytes_per_s=3 * 10**9, memory_rate="measured")
    known = limit_of([step(n) for n in range(9)], board=board)
    assert isinstance(known, ComputeLimit)
    assert (known.memory_bytes_per_s, known.memory_rate) == (3 * 10**9, "measured")


def test_a_fast_board_of_unknown_bandwidth_gets_no_guess() -> None:
    limit = limit_of([step(n, duration_s=0.01) for n in range(9)])
    assert isinstance(limit, UnknownBandwidth)
    assert limit.cause == "unknown"


def test_threads_that_wait_are_told_from_threads_that_work() -> None:
    limit = limit_of([step(n, busy_threads=0.6, involuntary_switches=40) for n in range(9)])
    assert isinstance(limit, IdleThreads)
    assert (limit.cause, limit.threads) == ("unknown", 2)
    assert limit.switches_per_token == 40


def test_a_run_without_tokens_has_no_limit() -> None:
    assert limit_of([]) == NothingDecoded(lacking="tokens")


def spread(*weights_bytes: int) -> Spread:
    shares = [
        Share(board=name, layers=4, weights_bytes=each, memory_bytes=2 * each)
        for name, each in zip("abc", weights_bytes, strict=False)
    ]
    return Spread(split="layer", shares=tuple(shares))


def test_of_a_group_it_is_told_who_computed_and_whether_the_first_alone_would_be_faster() -> None:
    steps = [step(n, duration_s=0.1, busy_threads=0.4, involuntary_switches=40) for n in range(9)]
    limit = limit_of(steps, spread=spread(100, 200, 100))
    assert isinstance(limit, GroupLimit)
    assert (limit.first, limit.others) == ("a", ("b", "c"))
    assert (limit.token_s, limit.own_s) == pytest.approx((0.1, 0.02))
    assert limit.alone_s == pytest.approx(0.08)
    found = Limit.of(limit)
    assert "of 100 ms per token, a computed for 20.0 ms and waited 80.0 ms for b and c" in (
        found.sentence
    )
    assert "The model fits on a alone" in found.advice


def test_of_a_group_whose_model_exceeds_the_first_nothing_is_said_of_it_alone() -> None:
    steps = [step(n, duration_s=0.1, busy_threads=0.4) for n in range(9)]
    limit = limit_of(steps, available=1_000_000, spread=spread(100, 300))
    assert isinstance(limit, GroupLimit)
    assert limit.alone_s is None
    assert "'listen'" in Limit.of(limit).advice
    busy = [step(n, duration_s=0.1, busy_threads=1.4) for n in range(9)]
    slower_alone = limit_of(busy, spread=spread(100, 300))
    assert isinstance(slower_alone, GroupLimit)
    assert Limit.of(slower_alone).advice == ""


def server(board: str, *, threads: int, cpu_s: float) -> ServerLoad:
    """Return a server that was busy for so much of each second."""
    samples = [MemberSample(at_s=float(second), cpu_s=second * cpu_s) for second in range(-1, 20)]
    return ServerLoad(board=board, threads=threads, samples=tuple(samples))


@pytest.mark.parametrize(
    ("cpu_s", "limited"),
    [((1.0, 0.2), "b"), ((0.2, 0.2), "the connection to c"), ((0.0, 1.6), "c")],
)
def test_of_a_group_it_is_told_which_member_or_connection_limits(
    cpu_s: tuple[float, float], limited: str
) -> None:
    steps = [step(n, duration_s=1.0, busy_threads=0.2) for n in range(9)]
    start_s = steps[0].start_ns / 1e9
    servers = [
        each.model_copy(
            update={
                "samples": tuple(
                    sample.model_copy(update={"at_s": sample.at_s + start_s})
                    for sample in each.samples
                )
            }
        )
        for each in (
            server("b", threads=2, cpu_s=cpu_s[0]),
            server("c", threads=2, cpu_s=cpu_s[1]),
        )
    ]
    forecast = GroupForecast(
        split="layer",
        parts=tuple(
            PartTime(kind="link", board=board, token_s=time_s)
            for board, time_s in (("b", 0.001), ("c", 0.003))
        ),
    )
    limit = limit_of(steps, spread=spread(100, 200, 100), servers=servers, forecast=forecast)
    assert isinstance(limit, GroupLimit)
    assert sum(part.token_s for part in limit.parts) == pytest.approx(1.0)
    sentence = Limit.of(limit).sentence
    assert sentence.startswith(
        f"Limited by {limited}: of 1.00 s per token, computing took a 100 ms, b "
    )


def node(board: str, computing_s: float, cpu_share: float = 1.0) -> ServerLoad:
    times = NodeActivity(computing_s=computing_s, cpu_share=cpu_share)
    return ServerLoad(board=board, threads=2, samples=(), node=times)


def shared_steps(*, computing_s: float, token_s: float = 0.1) -> list[Step]:
    """Return steps of two threads that had a CPU while they computed."""
    exchanged = {
        "sync_ns": round((token_s - computing_s) * 1e9),
        "sent_bytes": 10,
        "received_bytes": 10,
    }
    busy = 2 * computing_s / token_s
    steps = [step(n, duration_s=token_s, busy_threads=busy) for n in range(9)]
    return [each.model_copy(update=exchanged) for each in steps]


@pytest.mark.parametrize(
    ("computing_s", "limited"),
    [
        ((0.05, 0.06), "Limited by the network: 40% of a token's 100 ms is synchronisation"),
        ((0.08, 0.09), "Limited by compute: "),
        ((0.05, 0.09), "Limited by b, for which the others wait: "),
        ((0.09, 0.05), "Limited by a, for which the others wait: "),
    ],
)
def test_of_boards_that_share_layers_it_is_told_what_all_of_them_wait_for(
    computing_s: tuple[float, float], limited: str
) -> None:
    own_s, other_s = computing_s
    limit = limit_of(
        shared_steps(computing_s=own_s), spread=spread(100, 100), servers=[node("b", other_s)]
    )
    assert isinstance(limit, SharedLimit)
    assert [part.token_s for part in limit.parts] == pytest.approx([own_s, other_s])
    assert limit.crowded == ()
    assert Limit.of(limit).sentence.startswith(limited)


def test_a_board_with_fewer_free_cores_than_threads_is_named() -> None:
    steps = shared_steps(computing_s=0.09)
    limit = limit_of(steps, spread=spread(100, 100), servers=[node("b", 0.09, cpu_share=0.5)])
    assert isinstance(limit, SharedLimit)
    assert limit.crowded == ("b",)
    assert "On b, fewer cores are free than there are threads" in Limit.of(limit).advice
