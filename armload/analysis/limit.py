"""What limited a run: one sentence with figures, and what to try next."""

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
from armload.analysis.run import Limit
from armload.analysis.streaming import streamed_weights
from armload.analysis.summary import generating
from armload.boards.conditions import Conditions, within_group
from armload.core.values import counted, format_bytes
from armload.engines.job import BoardRecord, ModelRecord, RateKind
from armload.engines.plan import cpu_numbers
from armload.engines.trace import Step, Trace, Weights

BUSY_FROM = 0.80
"""Share of wall time that the engine's threads must run on a CPU to count as busy."""

STORAGE_LIMITS_FROM = 1 - BUSY_FROM
"""Share of a token's time that reading storage must take to be what limits."""

BANDWIDTH_LIMITED_FROM = 0.60
"""Share of the memory's read bandwidth from which memory is what limits."""

FASTEST_QUANTISATION = "Q4_0"
"""Has interleaved integer dot-product kernels for every Arm CPU in llama.cpp."""

ROOM_TO_STAY = 0.8
"""Share of the free memory that a model may take and stay there."""

SLOWEST_BOARD_BYTES_PER_S = 1.5e9
"""No supported board's memory is slower; below this the memory can't be what limits."""


def find_limit(
    steps: Sequence[Step],
    header: Trace | None,
    *,
    model: ModelRecord,
    board: BoardRecord,
    before: Conditions,
    cpus: str | None = None,
) -> Limit:
    """Say what limited the generating steps, from medians over them.

    Args:
        header: of its trace; none when the engine ended before it began one.
        cpus: the cores that the engine was kept to; none for all.
    """
    decode = [step for step in generating(steps) if step.duration_s > 0]
    if header is None or not decode:
        return _nothing_decoded(header)
    rate = storage_rate(decode, board.storage_read_bytes_per_s)
    reading = median(storage_s(step, rate) / step.duration_s for step in decode)
    if reading >= STORAGE_LIMITS_FROM:
        return _storage(decode, model, board, before, streamed_weights(header))
    threads, weights_bytes = header.threads, model.bytes_per_token
    read = _what_was_read(decode, rate)
    if threads is None or weights_bytes is None:
        return _of_a_watched_program(decode, board, read)
    pass_s = median(step.duration_s for step in decode)
    busy = median(step.cpu_ns / 1e9 / (step.duration_s * threads) for step in decode)
    weights_bytes_per_s = weights_bytes / pass_s
    if busy < BUSY_FROM:
        return _waiting(without_storage(decode) or decode, threads, read)
    if board.memory_bytes_per_s is not None:
        share = weights_bytes_per_s / board.memory_bytes_per_s
        if share >= BANDWIDTH_LIMITED_FROM:
            return Limit(
                cause="memory bandwidth",
                sentence=(
                    f"Limited by memory bandwidth: each {_pass(decode)} reads "
                    f"{format_bytes(weights_bytes)} of weights at "
                    f"{format_bytes(weights_bytes_per_s)}/s, {share:.0%} of "
                    f"{_the(board.memory_rate)} {format_bytes(board.memory_bytes_per_s)}/s."
                ),
                advice="Use a quantisation with fewer bits; more threads will not help.",
            )
    elif weights_bytes_per_s >= SLOWEST_BOARD_BYTES_PER_S:
        return Limit(
            cause="unknown",
            sentence=(
                f"The threads were busy {_share(busy)} of the time and {read}, with weights read "
                f"from memory at {format_bytes(weights_bytes_per_s)}/s; this board's "
                "maximum is unknown."
            ),
            advice="Set facts.memory_bytes_per_s in the board's file to tell memory from compute.",
        )
    return _compute(busy, weights_bytes_per_s, threads, board, model, cpus, read)


def _pass(decode: Sequence[Step]) -> str:
    return "pass over the weights" if any(step.tokens > 1 for step in decode) else "token"


def _share(busy: float) -> str:
    # The kernel's CPU time and the clock are not read at the same moment.
    return f"{min(busy, 1.0):.0%}"


def _the(kind: RateKind | None) -> str:
    return "this board's" if kind is None else f"the {kind}"


def _nothing_decoded(header: Trace | None) -> Limit:
    if header is None:
        sentence, advice = (
            "The engine ended before it decoded any token.",
            "See how the program ended.",
        )
    elif header.source == "watch":
        sentence, advice = "Without times per token, the limit cannot be determined.", ""
    else:
        sentence = "Too few tokens were generated to determine what limits the speed."
        advice = "Generate more tokens with -n."
    return Limit(cause="unknown", sentence=sentence, advice=advice)


def _what_was_read(decode: Sequence[Step], rate: float) -> str:
    """Say what generating read from storage, where that is too little to be what limits."""
    if not any(step.read_bytes or step.major_faults for step in decode):
        return "nothing was read from storage"
    tokens = sum(step.output_tokens for step in decode)
    share = sum(storage_s(step, rate) for step in decode) / sum(step.duration_s for step in decode)
    took = "less than 1%" if share < 0.01 else f"about {min(share, 1.0):.0%}"
    if all(step.read_bytes is None for step in decode):
        faults = sum(step.major_faults for step in decode) / tokens
        return f"reading storage took {took} of the time ({faults:,.1f} major faults per token)"
    per_token = format_bytes(sum(step.read_bytes or 0 for step in decode) / tokens)
    return f"reading storage took {took} of the time ({per_token} per token)"


def _of_a_watched_program(decode: Sequence[Step], board: BoardRecord, read: str) -> Limit:
    """Describe the limit as far as it is known without threads and weights."""
    busy = median(step.cpu_ns / 1e9 / step.duration_s for step in decode)
    return Limit(
        cause="unknown",
        sentence=(
            f"While text was generated, the program kept {busy:.1f} of {board.cores} cores busy "
            f"and {read}; for a program other than armload's engine, memory and compute limits "
            "cannot be "
            "told apart."
        ),
        advice="Try more threads if the program has an option for it."
        if busy < BUSY_FROM * board.cores
        else "",
    )


def _storage(
    decode: Sequence[Step],
    model: ModelRecord,
    board: BoardRecord,
    before: Conditions,
    streamed: Weights | None,
) -> Limit:
    pass_s = median(step.duration_s for step in decode)
    free = before.memory_available_bytes
    of_free = f"{format_bytes(free)} of free memory{within_group(before)}"
    if all(step.read_bytes is None for step in decode):
        faults = median(step.major_faults for step in decode)
        what = (
            f"each {_pass(decode)} waited {faults:,.0f} times for pages of the model to be read, "
            f"{pass_s:.2g} s in total including compute (this kernel does not count the bytes)"
        )
    else:
        read_per_pass = median(step.read_bytes or 0 for step in decode)
        rate = read_per_pass / pass_s
        known = board.storage_read_bytes_per_s
        of_known = (
            f", {rate / known:.0%} of {_the(board.storage_read_rate)} {format_bytes(known)}/s"
            if known
            else ""
        )
        what = (
            f"each {_pass(decode)} reads {format_bytes(read_per_pass)} at {format_bytes(rate)}/s"
            f"{of_known}"
        )
    target = ROOM_TO_STAY * free
    advice = (
        f"Use a model file smaller than {format_bytes(target)} ({ROOM_TO_STAY:.0%} of the free "
        "memory): then no weights need to be read again from storage."
    )
    if streamed is not None:
        why = (
            f"{format_bytes(streamed.held_bytes)} of the {format_bytes(streamed.weights_bytes)} "
            f"of weights stay in memory, with {of_free} before the run"
        )
    elif model.size_bytes is None:
        why = f"there were {of_free}"
    elif model.size_bytes > free:
        excess = format_bytes(model.size_bytes - free)
        why = f"the model is {excess} larger than the {of_free}"
    else:
        why = f"the model's {format_bytes(model.size_bytes)} did not stay in the {of_free}"
        if model.size_bytes <= target:
            advice = (
                "The model fitted before the run. Compare the free memory before and after it: if "
                "it fell by more than the model takes, another program took it."
            )
    return Limit(cause="storage", sentence=f"Limited by storage: {what}; {why}.", advice=advice)


def _waiting(decode: Sequence[Step], thread_count: int, read: str) -> Limit:
    busy, switches = busy_share(decode, thread_count), switches_per_token(decode)
    alone = thread_count == 1
    threads = counted(thread_count, "thread")
    why = "it was preempted" if alone else "they waited for each other or were preempted"
    advice = "" if alone else ", and try fewer threads with --threads"
    return Limit(
        cause="unknown",
        sentence=(
            f"The engine's {threads} ran only {busy:.0%} of the time and {read}: "
            f"{why} ({switches:.0f} involuntary switches per token)."
        ),
        advice=f"Check for other programs on the board{advice}.",
    )


def _compute(
    busy: float,
    weights_bytes_per_s: float,
    threads: int,
    board: BoardRecord,
    model: ModelRecord,
    cpus: str | None,
    read: str,
) -> Limit:
    cores = board.cores if cpus is None else len(cpu_numbers(cpus))
    if threads < cores:
        advice = f"Try more threads: --threads {cores}."
    elif cores < board.cores:
        advice = f"Try more cores than --cpus {cpus}."
    elif model.quantisation == FASTEST_QUANTISATION:
        advice = "Use a smaller model: this quantisation is already the cheapest to compute."
    else:
        advice = (
            f"Try the model in {FASTEST_QUANTISATION}, the cheapest quantisation to compute on "
            "this CPU, or a smaller model."
        )
    known = board.memory_bytes_per_s
    memory = (
        f"even the slowest board's memory gives {format_bytes(SLOWEST_BOARD_BYTES_PER_S)}/s"
        if known is None
        else f"the memory gives {_the(board.memory_rate)} {format_bytes(known)}/s"
    )
    return Limit(
        cause="compute",
        sentence=(
            f"Limited by compute: {threads} of {board.cores} cores "
            f"{'was' if threads == 1 else 'were'} busy {_share(busy)} of the time, {read}, and "
            f"weights were read from memory at {format_bytes(weights_bytes_per_s)}/s, while "
            f"{memory}."
        ),
        advice=advice,
    )
