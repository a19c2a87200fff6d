"""What limited a run: one sentence with figures, and what to try next."""

from __future__ import annotations

from armload.analysis.limit import (
    BUSY_FROM,
    FASTEST_QUANTISATION,
    ROOM_TO_STAY,
    SLOWEST_BOARD_BYTES_PER_S,
)
from armload.analysis.limit_figures import (
    BandwidthLimit,
    ComputeLimit,
    GroupLimit,
    IdleThreads,
    LimitFigures,
    NothingDecoded,
    OtherProgram,
    StorageLimit,
    StorageReads,
    UnknownBandwidth,
)
from armload.analysis.run import Limit
from armload.analysis.wording.splits import part_name
from armload.boards.conditions import group_limit
from armload.core.values import counted, format_bytes, format_seconds
from armload.engines.job import RateKind
from armload.engines.prediction import PartTime


def limit(found: LimitFigures) -> Limit:
    match found:
        case NothingDecoded():
            sentence, advice = _nothing_decoded(found)
        case StorageLimit():
            sentence, advice = _storage(found), _against_storage(found)
        case BandwidthLimit():
            sentence = (
                f"Limited by memory bandwidth: each {_pass(found)} reads "
                f"{format_bytes(found.weights_bytes)} of weights at "
                f"{format_bytes(found.weights_bytes_per_s)}/s, "
                f"{found.weights_bytes_per_s / found.memory_bytes_per_s:.0%} of "
                f"{_the(found.memory_rate)} {format_bytes(found.memory_bytes_per_s)}/s."
            )
            advice = "Use a quantisation with fewer bits; more threads will not help."
        case UnknownBandwidth():
            sentence = (
                f"Limited by memory bandwidth or compute: the threads were busy "
                f"{_share(found.busy_share)} of the time, {_reads(found.reads)}, and weights were "
                f"read from memory at {format_bytes(found.weights_bytes_per_s)}/s; this board's "
                "memory bandwidth is unknown."
            )
            advice = "Set facts.memory_bytes_per_s in the board's file to tell the two apart."
        case ComputeLimit():
            sentence, advice = _compute(found), _against_compute(found)
        case IdleThreads():
            sentence, advice = _idle(found)
        case OtherProgram():
            sentence = (
                f"During decode, the program kept {found.busy_cores:.1f} of {found.cores} cores "
                f"busy, and {_reads(found.reads)}; memory and compute limits can be told apart "
                "only for armload's own engine."
            )
            has_idle_cores = found.busy_cores < BUSY_FROM * found.cores
            advice = "Try more threads if the program has an option for it."
            advice = advice if has_idle_cores else ""
        case GroupLimit():
            sentence, advice = _group(found)
    return Limit(cause=found.cause, figures=found, sentence=sentence, advice=advice)


def _pass(found: StorageLimit | BandwidthLimit) -> str:
    return "token" if found.has_single_tokens else "pass over the weights"


def _share(busy: float) -> str:
    # The kernel's CPU time and the clock are not read at the same moment.
    return f"{min(busy, 1.0):.0%}"


def _the(kind: RateKind | None) -> str:
    return "this board's" if kind is None else f"the {kind}"


def _nothing_decoded(found: NothingDecoded) -> tuple[str, str]:
    if found.lacking == "trace":
        return "The engine exited before it decoded a token.", "Check how the program ended."
    if found.lacking == "token times":
        return "Without times per token, the limit cannot be determined.", ""
    return (
        "Too few tokens were generated to determine the limit.",
        "Generate more tokens with -n.",
    )


def _reads(found: StorageReads) -> str:
    if found.bytes_per_token is None and found.faults_per_token is None:
        return "nothing was read from storage"
    share = found.time_share
    took = "less than 1%" if share < 0.01 else f"about {min(share, 1.0):.0%}"
    per_token = (
        f"{found.faults_per_token:,.1f} major faults"
        if found.bytes_per_token is None
        else format_bytes(found.bytes_per_token)
    )
    return f"reading storage took {took} of the time ({per_token} per token)"


def _storage(found: StorageLimit) -> str:
    read, known = found.read_bytes_per_pass, found.storage_bytes_per_s
    if read is None:
        what = (
            f"each {_pass(found)} took {found.faults_per_pass:,.0f} major faults and "
            f"{found.pass_s:.2g} s, including compute (this kernel does not count the bytes read)"
        )
    else:
        rate = read / found.pass_s
        of_known = (
            f", {rate / known:.0%} of {_the(found.storage_rate)} {format_bytes(known)}/s"
            if known
            else ""
        )
        what = f"each {_pass(found)} reads {format_bytes(read)} at {format_bytes(rate)}/s{of_known}"
    return f"Limited by storage: {what}; {_why_storage(found)}."


def _why_storage(found: StorageLimit) -> str:
    size, free = found.model_bytes, found.free_bytes
    of_free = f"{format_bytes(free)} of free memory{group_limit(found.memory_limit_bytes)}"
    if found.held_bytes is not None and found.weights_bytes is not None:
        return (
            f"{format_bytes(found.held_bytes)} of the {format_bytes(found.weights_bytes)} of "
            f"weights stay in memory, with {of_free} before the run"
        )
    if size is None:
        return f"the board had {of_free}"
    if size > free:
        return f"the model is {format_bytes(size - free)} larger than the {of_free}"
    return f"the model's {format_bytes(size)} did not stay in the {of_free}"


def _against_storage(found: StorageLimit) -> str:
    target = ROOM_TO_STAY * found.free_bytes
    is_streamed = found.held_bytes is not None
    if not is_streamed and found.model_bytes is not None and found.model_bytes <= target:
        return (
            "The model fitted before the run. If free memory fell by more than the model's size, "
            "another program took it: compare the free memory before and after the run."
        )
    return (
        f"Use a model file smaller than {format_bytes(target)} ({ROOM_TO_STAY:.0%} of the free "
        "memory), so that its weights stay in memory."
    )


def _idle(found: IdleThreads) -> tuple[str, str]:
    alone = found.threads == 1
    why = "it was preempted" if alone else "they waited for each other or were preempted"
    fewer = "" if alone else ", and try fewer threads with --threads"
    return (
        (
            f"The engine's {counted(found.threads, 'thread')} ran only {found.busy_share:.0%} of "
            f"the time, and {_reads(found.reads)}: {why} ({found.switches_per_token:.0f} "
            "involuntary context switches per token)."
        ),
        f"Check for other programs on the board{fewer}.",
    )


def _group(found: GroupLimit) -> tuple[str, str]:
    sentence = _parts_of_group(found) if found.parts else _waiting_of_group(found)
    if found.alone_s is not None and found.alone_s < found.token_s:
        return sentence, (
            f"The model fits on {found.first} alone, where a token should take about "
            f"{format_seconds(found.alone_s)}."
        )
    waiting_s = (found.token_s - found.own_s) / len(found.others)
    slower = _longest(found).kind == "link" if found.parts else found.own_s < waiting_s
    return sentence, (
        "If the network is slow, set 'listen' in the group's file: the members then reach each "
        "other directly."
        if slower
        else ""
    )


def _waiting_of_group(found: GroupLimit) -> str:
    token, own = format_seconds(found.token_s), format_seconds(found.own_s)
    return (
        f"Spread over a group: of {token} per token, {found.first} computed for {own} and waited "
        f"{format_seconds(found.token_s - found.own_s)} for "
        f"{' and '.join(found.others)} and the connections between them."
    )


def _longest(found: GroupLimit) -> PartTime:
    return max(found.parts, key=lambda part: part.token_s)


def _parts_of_group(found: GroupLimit) -> str:
    members = [part for part in found.parts if part.kind == "member"]
    link_s = sum(part.token_s for part in found.parts if part.kind == "link")
    computed = ", ".join(f"{part.board} {format_seconds(part.token_s)}" for part in members)
    at_once = ", all at once" if found.split == "tensor" else ""
    return (
        f"Limited by {part_name(_longest(found))}: of {format_seconds(found.token_s)} per token, "
        f"computing took {computed}{at_once}; {format_seconds(link_s)} went into the connections "
        "between them, or into waiting for the CPU."
    )


def _compute(found: ComputeLimit) -> str:
    known = found.memory_bytes_per_s
    memory = (
        f"below the {format_bytes(SLOWEST_BOARD_BYTES_PER_S)}/s of the slowest supported board"
        if known is None
        else f"below {_the(found.memory_rate)} {format_bytes(known)}/s"
    )
    return (
        f"Limited by compute: {found.threads} of {found.cores} cores "
        f"{'was' if found.threads == 1 else 'were'} busy {_share(found.busy_share)} of the time, "
        f"{_reads(found.reads)}, and weights were read from memory at "
        f"{format_bytes(found.weights_bytes_per_s)}/s, {memory}."
    )


def _against_compute(found: ComputeLimit) -> str:
    if found.threads < found.cpus_cores:
        return f"Try more threads: --threads {found.cpus_cores}."
    if found.cpus_cores < found.cores:
        return f"Try more cores than --cpus {found.cpus}."
    if found.quantisation == FASTEST_QUANTISATION:
        return "Use a smaller model: this quantisation is already the cheapest to compute."
    return (
        f"Try the model in {FASTEST_QUANTISATION}, the cheapest quantisation to compute on this "
        "CPU, or a smaller model."
    )
