"""What limited a run, from medians over its generating steps."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from armload.analysis.columns import (
    busy_share,
    storage_rate,
    storage_s,
    switches_per_token,
    without_storage,
)
from armload.analysis.device_clocks import ClockUse
from armload.analysis.limit_findings import (
    BUSY_FROM,
    ROOM_TO_STAY,
    SLOWEST_BOARD_BYTES_PER_S,
    BandwidthLimit,
    ComputedOnGpu,
    ComputeLimit,
    GroupLimit,
    IdleThreads,
    LimitFinding,
    NothingDecoded,
    OtherProgram,
    SharedLimit,
    StorageLimit,
    StorageReads,
    UnknownBandwidth,
)
from armload.analysis.members import NodeActivity, ServerLoad, computed_s
from armload.analysis.streaming import streamed_weights
from armload.analysis.summary import generating
from armload.boards.conditions import Conditions
from armload.core.cpu_sets import cpu_numbers
from armload.engines.job import BoardRecord, ModelRecord
from armload.engines.prediction import GroupForecast, PartTime
from armload.engines.spread import Spread
from armload.engines.trace import Step, Trace, Weights, wall_time_s

STORAGE_LIMITS_FROM = 1 - BUSY_FROM
"""Share of a token's time that reading storage must take to be what limits."""

_SAME_CLOCK = 0.05
"""Clocks that differ by this share are one."""

BANDWIDTH_LIMITED_FROM = 0.60
"""Share of the memory's read bandwidth from which memory is what limits."""


def find_limit(
    steps: Sequence[Step],
    header: Trace | None,
    *,
    model: ModelRecord,
    board: BoardRecord,
    before: Conditions,
    cpus: str | None = None,
    spread: Spread | None = None,
    forecast: GroupForecast | None = None,
    servers: Sequence[ServerLoad] = (),
    device_clocks: Sequence[ClockUse] = (),
    on_gpu: bool = False,
    embeds: bool = False,
) -> LimitFinding:
    """Return what limited the generating steps.

    Args:
        header: of its trace; none when the engine ended before it began one.
        cpus: the cores that the engine was kept to; none for all.
        spread: over the members of a group; none on a board by itself.
        forecast: what that was expected to take; none where nothing was expected.
        servers: of the members.
        on_gpu: a GPU computed, whose work none of the trace's counters shows.
        embeds: it made embeddings, and generated nothing.
        device_clocks: in the run: a memory with another clock gives another rate than was measured.
    """
    decode = [step for step in generating(steps) if step.duration_s > 0]
    if header is None or not decode:
        if header is None:
            return NothingDecoded(lacking="trace")
        if embeds:
            return NothingDecoded(lacking="texts")
        return NothingDecoded(lacking="token times" if header.source == "watch" else "tokens")
    if on_gpu:
        busy = median(step.cpu_ns / 1e9 / step.duration_s for step in decode)
        return ComputedOnGpu(busy_cores=busy, cores=board.cores)
    own = NodeActivity.of(header, steps)
    if spread is not None and own is not None:
        return _shared(decode, spread, own, servers)
    if spread is not None and header.threads is not None:
        first, *others = spread.shares
        token_s = median(step.duration_s for step in decode)
        own_s = min(token_s, median(step.cpu_ns / 1e9 / header.threads for step in decode))
        fits = (model.size_bytes or 0) < ROOM_TO_STAY * before.memory_available_bytes
        whole = sum(share.weights_bytes for share in spread.shares)
        found = GroupLimit(
            first=first.board,
            others=tuple(share.board for share in others),
            split=spread.split,
            token_s=token_s,
            own_s=own_s,
            alone_s=own_s * whole / first.weights_bytes if fits else None,
        )
        return found.model_copy(update={"parts": _parts(found, decode, servers, forecast)})
    rate = storage_rate(decode, board.storage_read_bytes_per_s)
    reading = median(storage_s(step, rate) / step.duration_s for step in decode)
    if reading >= STORAGE_LIMITS_FROM:
        return _storage(decode, model, board, before, streamed_weights(header))
    threads, weights_bytes = header.threads, model.bytes_per_token
    read = _what_was_read(decode, rate)
    if threads is None or weights_bytes is None:
        busy = median(step.cpu_ns / 1e9 / step.duration_s for step in decode)
        return OtherProgram(busy_cores=busy, cores=board.cores, reads=read)
    pass_s = median(step.duration_s for step in decode)
    busy = median(step.cpu_ns / 1e9 / (step.duration_s * threads) for step in decode)
    weights_bytes_per_s = weights_bytes / pass_s
    if busy < BUSY_FROM:
        quiet = without_storage(decode) or decode
        return IdleThreads(
            threads=threads,
            busy_share=busy_share(quiet, threads),
            reads=read,
            switches_per_token=switches_per_token(quiet),
        )
    memory_bytes_per_s, memory_mhz = _memory_rate(board, device_clocks)
    if memory_bytes_per_s is not None:
        share = weights_bytes_per_s / memory_bytes_per_s
        if share >= BANDWIDTH_LIMITED_FROM:
            return BandwidthLimit(
                has_single_tokens=_has_single_tokens(decode),
                weights_bytes=weights_bytes,
                weights_bytes_per_s=weights_bytes_per_s,
                memory_bytes_per_s=memory_bytes_per_s,
                memory_rate=board.memory_rate,
                memory_mhz=memory_mhz,
            )
    elif weights_bytes_per_s >= SLOWEST_BOARD_BYTES_PER_S:
        return UnknownBandwidth(
            busy_share=busy, reads=read, weights_bytes_per_s=weights_bytes_per_s
        )
    return ComputeLimit(
        threads=threads,
        cores=board.cores,
        busy_share=busy,
        reads=read,
        weights_bytes_per_s=weights_bytes_per_s,
        memory_bytes_per_s=memory_bytes_per_s,
        memory_rate=board.memory_rate,
        memory_mhz=memory_mhz,
        cpus=cpus,
        cpus_cores=board.cores if cpus is None else len(cpu_numbers(cpus)),
        quantisation=model.quantisation or "",
    )


def _memory_rate(
    board: BoardRecord, device_clocks: Sequence[ClockUse]
) -> tuple[int | None, int | None]:
    """Return what the memory gave in the run, and at which clock where that is another."""
    rate, measured_hz = board.memory_bytes_per_s, board.memory_clock_hz
    hz = next((each.mean_hz for each in device_clocks if each.kind == "memory"), None)
    if rate is None or not measured_hz or not hz or abs(hz / measured_hz - 1) <= _SAME_CLOCK:
        return rate, None
    return max(1, round(rate * hz / measured_hz)), round(hz / 1e6)


def _has_single_tokens(decode: Sequence[Step]) -> bool:
    return all(step.tokens <= 1 for step in decode)


def _what_was_read(decode: Sequence[Step], rate: float) -> StorageReads:
    if not any(step.read_bytes or step.major_faults for step in decode):
        return StorageReads()
    tokens = sum(step.output_tokens for step in decode)
    share = sum(storage_s(step, rate) for step in decode) / wall_time_s(decode)
    if all(step.read_bytes is None for step in decode):
        faults = sum(step.major_faults for step in decode) / tokens
        return StorageReads(time_share=share, faults_per_token=faults)
    read_bytes = sum(step.read_bytes or 0 for step in decode)
    return StorageReads(time_share=share, bytes_per_token=read_bytes / tokens)


def _storage(
    decode: Sequence[Step],
    model: ModelRecord,
    board: BoardRecord,
    before: Conditions,
    streamed: Weights | None,
) -> StorageLimit:
    counts_bytes = any(step.read_bytes is not None for step in decode)
    return StorageLimit(
        has_single_tokens=_has_single_tokens(decode),
        pass_s=median(step.duration_s for step in decode),
        read_bytes_per_pass=median(step.read_bytes or 0 for step in decode)
        if counts_bytes
        else None,
        faults_per_pass=median(step.major_faults for step in decode),
        storage_bytes_per_s=board.storage_read_bytes_per_s,
        storage_rate=board.storage_read_rate,
        free_bytes=before.memory_available_bytes,
        memory_limit_bytes=before.memory_limit_bytes,
        held_bytes=streamed.held_bytes if streamed else None,
        weights_bytes=streamed.weights_bytes if streamed else None,
        model_bytes=model.size_bytes,
    )


def _shared(
    decode: Sequence[Step], spread: Spread, own: NodeActivity, servers: Sequence[ServerLoad]
) -> SharedLimit:
    first = spread.shares[0].board
    nodes = {first: own} | {each.board: each.node for each in servers if each.node is not None}
    return SharedLimit(
        token_s=median(step.duration_s for step in decode),
        parts=tuple(
            PartTime(kind="member", board=board, token_s=node.computing_s)
            for board, node in nodes.items()
        ),
        crowded=tuple(board for board, node in nodes.items() if node.cpu_share < BUSY_FROM),
        is_direct=spread.is_direct,
    )


def _parts(
    found: GroupLimit,
    decode: Sequence[Step],
    servers: Sequence[ServerLoad],
    forecast: GroupForecast | None,
) -> tuple[PartTime, ...]:
    from_s, to_s = decode[0].start_ns / 1e9, decode[-1].end_ns / 1e9
    passes_s = wall_time_s(decode)
    # Of the whole time, in which the program also does other things than decoding.
    shares = {
        each.board: None if busy_s is None else min(1.0, busy_s / passes_s) * found.token_s
        for each in servers
        for busy_s in (computed_s(each, from_s, to_s),)
    }
    if not shares or not {*found.others} <= {*shares}:
        return ()
    known = {board: time_s for board, time_s in shares.items() if time_s is not None}
    if len(known) < len(shares):
        return ()
    computed = {found.first: found.own_s, **known}
    busy_s = sum(computed.values()) if found.split == "layer" else max(computed.values())
    expected = {
        part.board: part.token_s
        for part in (forecast.parts if forecast else ())
        if part.kind == "link" and part.board in found.others
    }
    if len(expected) < len(found.others):
        expected = dict.fromkeys(found.others, 1.0)
    left_s, whole_s = max(0.0, found.token_s - busy_s), sum(expected.values()) or 1.0
    return (
        *(PartTime(kind="member", board=board, token_s=s) for board, s in computed.items()),
        *(
            PartTime(kind="link", board=board, token_s=left_s * s / whole_s)
            for board, s in expected.items()
        ),
    )
