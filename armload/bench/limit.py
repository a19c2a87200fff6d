"""What limited a run: one sentence with figures, and what to try next."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from armload.bench.cpu_set import cpu_numbers
from armload.bench.cpu_share import busy_share, switches_per_token, without_storage
from armload.bench.record import BoardRecord, ModelRecord, RateKind
from armload.bench.run import Limit, Step, Trace
from armload.bench.summary import generating
from armload.boards.conditions import Conditions
from armload.core.values import format_bytes

READS_COUNT_FROM = 0.05
"""Share of a token's weights that must come from storage before storage is suspected."""

BUSY_FROM = 0.80
"""Share of wall time that the engine's threads must run on a CPU to count as busy."""

BANDWIDTH_LIMITED_FROM = 0.60
"""Share of the memory's read bandwidth from which memory is what limits."""

FASTEST_QUANTISATION = "Q4_0"
"""Has interleaved integer dot-product kernels for every Arm CPU in llama.cpp."""

LEAST_READ_BYTES = 1 << 20
"""What a token must read before storage is suspected, where the model's size is not known."""

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
        steps: all of the run's.
        header: of its trace; none when the engine ended before it began one.
        model: what ran.
        board: where.
        before: in which state that was.
        cpus: the cores that the engine was kept to; none for all.
    """
    decode = generating(steps)
    if header is None or not decode:
        return _nothing_decoded(header)
    threads, weights_bytes = header.threads, model.bytes_per_token
    if threads is None or weights_bytes is None:
        return _of_a_foreign_program(decode, model, board, before)
    token_s = median(step.duration_s / step.tokens for step in decode)
    if all(step.read_bytes is None for step in decode):
        waited = median(step.major_faults / step.tokens for step in decode)
        if waited >= 1:
            return _uncounted_storage(waited, token_s, model, before)
    read_per_token = median((step.read_bytes or 0) / step.tokens for step in decode)
    busy = median(step.cpu_ns / 1e9 / (step.duration_s * threads) for step in decode)
    if read_per_token > READS_COUNT_FROM * weights_bytes:
        return _storage(read_per_token, token_s, model, board, before)
    weights_bytes_per_s = weights_bytes / token_s
    if busy < BUSY_FROM:
        return _waiting(without_storage(decode) or decode, threads)
    if board.memory_bytes_per_s is not None:
        share = weights_bytes_per_s / board.memory_bytes_per_s
        if share >= BANDWIDTH_LIMITED_FROM:
            return Limit(
                cause="memory bandwidth",
                sentence=(
                    f"Limited by memory bandwidth: each token reads "
                    f"{format_bytes(weights_bytes)} of weights at "
                    f"{format_bytes(weights_bytes_per_s)}/s, {share:.0%} of "
                    f"{_the(board.memory_rate)} {format_bytes(board.memory_bytes_per_s)}/s."
                ),
                advice="Take a quantisation with fewer bits; more threads will not help.",
            )
    elif weights_bytes_per_s >= SLOWEST_BOARD_BYTES_PER_S:
        return Limit(
            cause="unknown",
            sentence=(
                "No token waited for storage and the threads were busy "
                f"{_share(busy)} of the time, with weights read at "
                f"{format_bytes(weights_bytes_per_s)}/s; whether that is all this board's memory "
                "gives is not known."
            ),
            advice="Write facts.memory_bytes_per_s into the board's file to tell the two apart.",
        )
    return _compute(busy, weights_bytes_per_s, threads, board, model, cpus)


def _share(busy: float) -> str:
    # The kernel's CPU time and the clock are not read at the same moment.
    return f"{min(busy, 1.0):.0%}"


def _the(kind: RateKind | None) -> str:
    return "this board's" if kind is None else f"the {kind}"


def _nothing_decoded(header: Trace | None) -> Limit:
    if header is None:
        sentence, advice = "The engine ended before it decoded anything.", "See how it ended."
    elif header.source == "watch":
        sentence, advice = "What limits the speed is not known without times per token.", ""
    else:
        sentence = "Too few tokens were generated to say what limits the speed."
        advice = "Ask for more tokens with -n."
    return Limit(cause="unknown", sentence=sentence, advice=advice)


def _of_a_foreign_program(
    decode: Sequence[Step], model: ModelRecord, board: BoardRecord, before: Conditions
) -> Limit:
    """Say what can be said without knowing threads and weights."""
    token_s = median(step.duration_s / step.tokens for step in decode)
    read_per_token = median((step.read_bytes or 0) / step.tokens for step in decode)
    counts_from = LEAST_READ_BYTES
    if model.size_bytes is not None:
        counts_from = max(counts_from, round(READS_COUNT_FROM * model.size_bytes))
    if read_per_token > counts_from:
        return _storage(read_per_token, token_s, model, board, before)
    busy = median(step.cpu_ns / 1e9 / step.duration_s for step in decode)
    storage = "Nothing was" if read_per_token == 0 else "Hardly anything was"
    return Limit(
        cause="unknown",
        sentence=(
            f"{storage} read from storage while text was generated, and the program kept "
            f"{busy:.1f} of {board.cores} cores busy; of a foreign program it cannot be told "
            "whether memory or computing limits it."
        ),
        advice="Try more threads, if it has a setting for them."
        if busy < BUSY_FROM * board.cores
        else "",
    )


def _storage(
    read_per_token: float,
    token_s: float,
    model: ModelRecord,
    board: BoardRecord,
    before: Conditions,
) -> Limit:
    rate = read_per_token / token_s
    known = board.storage_read_bytes_per_s
    of_known = (
        f", {rate / known:.0%} of {_the(board.storage_read_rate)} {format_bytes(known)}/s"
        if known
        else ""
    )
    free = before.memory_available_bytes
    if model.size_bytes is None:
        why = f"{format_bytes(free)} of memory were free"
    elif model.size_bytes > free:
        excess = format_bytes(model.size_bytes - free)
        why = f"the model is {excess} larger than the {format_bytes(free)} of free memory"
    else:
        why = (
            f"the model's {format_bytes(model.size_bytes)} did not stay in the "
            f"{format_bytes(free)} of free memory"
        )
    return Limit(
        cause="storage",
        sentence=(
            f"Limited by storage: each token reads {format_bytes(read_per_token)} "
            f"at {format_bytes(rate)}/s{of_known}; {why}."
        ),
        advice=f"Take a model file below {format_bytes(0.8 * free)}: then no token reads storage.",
    )


def _uncounted_storage(
    faults_per_token: float, token_s: float, model: ModelRecord, before: Conditions
) -> Limit:
    free = before.memory_available_bytes
    return Limit(
        cause="storage",
        sentence=(
            f"Limited by storage: each token waited {faults_per_token:,.0f} times for pages of the "
            f"model to be read, {token_s:.2g} s in all with the computing. This kernel does not "
            f"count the bytes; the model has {format_bytes(model.size_bytes or 0)}, and "
            f"{format_bytes(free)} of memory were free."
        ),
        advice=f"Take a model file below {format_bytes(0.8 * free)}: then no token reads storage.",
    )


def _waiting(decode: Sequence[Step], thread_count: int) -> Limit:
    busy, switches = busy_share(decode, thread_count), switches_per_token(decode)
    alone = thread_count == 1
    threads = f"{thread_count} thread{'' if alone else 's'}"
    why = "it was pushed aside" if alone else "they waited for each other or were pushed aside"
    advice = "" if alone else ", and try fewer threads with --threads"
    return Limit(
        cause="unknown",
        sentence=(
            f"The engine's {threads} ran only {busy:.0%} of the time and nothing was read from "
            f"storage: {why} ({switches:.0f} involuntary switches per token)."
        ),
        advice=f"Look for other programs on the board{advice}.",
    )


def _compute(
    busy: float,
    weights_bytes_per_s: float,
    threads: int,
    board: BoardRecord,
    model: ModelRecord,
    cpus: str | None,
) -> Limit:
    cores = board.cores if cpus is None else len(cpu_numbers(cpus))
    if threads < cores:
        advice = f"Try more threads: --threads {cores}."
    elif cores < board.cores:
        advice = f"Try more cores than --cpus {cpus}."
    elif model.quantisation == FASTEST_QUANTISATION:
        advice = "Take a smaller model: this quantisation is already the cheapest to compute."
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
            f"{'was' if threads == 1 else 'were'} busy {_share(busy)} of the time, nothing was "
            f"read from storage, and weights went by at {format_bytes(weights_bytes_per_s)}/s, "
            f"while {memory}."
        ),
        advice=advice,
    )
