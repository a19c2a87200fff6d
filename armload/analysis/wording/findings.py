"""Why a run is doubted, and what else a reader should know of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from armload.analysis.background import BackgroundProcess
from armload.analysis.findings import (
    MOST_MORE_RUNS,
    Contended,
    DegenerateText,
    EmulatorDelayed,
    Failed,
    Figures,
    LeaseLost,
    LockedBytes,
    MoreTokens,
    NotCold,
    NoTrace,
    OutputCount,
    OutputMissing,
    PromptCount,
    SlowerThanShown,
    StorageFull,
    StreamedBytes,
    Swapping,
    TextDiffers,
    Throttled,
    ThrottledByHardware,
    ThrottledFromStart,
    TooFewRepeats,
    TooFewTokens,
    UnderVoltage,
    Unsteady,
    WideSpread,
    WideSpreadOfRepeats,
)
from armload.analysis.run import Finding, Verdict
from armload.analysis.sanity import Departure, TextFault
from armload.analysis.streaming import WeightsNote
from armload.analysis.throttling import ThrottleEvent
from armload.analysis.wording.repeats import too_different
from armload.core.values import counted, format_bytes
from armload.engines.job import Workstation

_MORE_REPEATS = "Allow more (--precision-time)."


def verdict(found: Iterable[Figures], *, advises: bool = True) -> Verdict:
    """Return the verdict that findings make.

    Args:
        advises: the sentences also say what to do, which helps whoever can repeat the run.
    """
    say = sentence if advises else _fact
    return Verdict.of([Finding(name=each.name, figures=each, sentence=say(each)) for each in found])


def sentence(found: Figures) -> str:
    """Say what was found, and what to do about it."""
    return " ".join(filter(None, (_fact(found), _advice(found))))


def _fact(found: Figures) -> str:  # noqa: C901 - one case for each finding
    match found:
        case Failed():
            return found.meaning
        case NoTrace():
            return "No trace: the program never began to decode."
        case OutputCount():
            return (
                f"{found.requested_tokens} tokens were requested, but the trace has "
                f"{found.traced_tokens}."
            )
        case PromptCount():
            return (
                f"A prompt of {found.requested_tokens} tokens was requested, but "
                f"{found.processed_tokens} were processed."
            )
        case DegenerateText():
            return text_fault(found.fault)
        case OutputMissing():
            return found.missing
        case TextDiffers():
            return departure(found.departure)
        case StorageFull():
            return f"The board's storage was full during the run: {_lacking(found)}."
        case NotCold():
            return (
                "--cold was set, but the board's page cache could not be dropped: that needs "
                "write access to /proc/sys/vm/drop_caches, or armload's own program."
            )
        case LeaseLost():
            return "The lease was lost: another user may have used the board."
        case Swapping():
            return _swapping(found)
        case TooFewTokens():
            timed = found.timed_tokens
            return (
                f"Imprecise: {timed} {'token was' if timed == 1 else 'tokens were'} timed after "
                f"the first, and estimating their spread takes {found.needed_tokens}."
            )
        case WideSpread():
            return f"Imprecise: the median is known only within {found.within:.0%}."
        case TooFewRepeats():
            return f"Imprecise: only {found.runs} of at least {found.needed_runs} repeats."
        case WideSpreadOfRepeats():
            return (
                f"Imprecise: the median of {found.runs} runs is known only within "
                f"{found.within:.1%}."
            )
        case ThrottledFromStart():
            return _throttled_from_start(found)
        case Throttled():
            return (
                f"Throttled: for {found.time_share:.0%} of the time, none of the run's cores "
                f"exceeded {found.below_khz / 1e6:.2f} GHz; they fell from "
                f"{found.peak_khz / 1e6:.2f} to {found.lowest_khz / 1e6:.2f} GHz"
                f"{_heat(found.celsius)}."
            )
        case UnderVoltage():
            return (
                f"Under-voltage {_when(found.event)}: the board's supply was too low, and its "
                "clock was lowered."
            )
        case ThrottledByHardware():
            return _throttled_by_hardware(found)
        case SlowerThanShown():
            return (
                f"Throttled: core {found.clock.core} ran at {found.clock.khz / 1e6:.2f} GHz "
                f"{found.clock.moment} the run, while the kernel reported "
                f"{found.clock.shown_khz / 1e6:.2f}."
            )
        case Contended():
            return _contended(found)
        case EmulatorDelayed():
            return (
                "Contended: the workstation that emulates the board was busy. The emulator got "
                f"only {found.cpu_share:.0%} of the CPU time that it needed (load {found.load:.1f} "
                f"on {counted(found.cores, 'core')})."
            )
        case Unsteady():
            other = found.process
            return (
                f"Unsteady: the slowest 10% of the tokens took {found.times_median:.1f} times the "
                "median or more, without reading from storage."
                + (f" Another program used the CPU: {_process(other)}." if other else "")
            )
        case StreamedBytes():
            return _streamed(found)
        case LockedBytes():
            return (
                f"The program locked {format_bytes(found.said_bytes)} of weights, but the kernel "
                f"reports {format_bytes(found.counted_bytes)} of locked memory (VmLck)."
            )


def _advice(found: Figures) -> str:  # noqa: C901 - one case for each finding with a remedy
    match found:
        case DegenerateText():
            return _other_text(found)
        case StorageFull():
            return f"Free space on it with: armload board.clean --board {found.board}"
        case LeaseLost():
            return "Repeat the run."
        case Swapping() if found.zram:
            return "Use a smaller model or context, or stop other programs on the board."
        case TooFewTokens():
            return f"{_more(found.more)}."
        case WideSpread():
            return f"{_narrower(found)}."
        case TooFewRepeats():
            return _MORE_REPEATS
        case WideSpreadOfRepeats():
            return _more_repeats(found)
        case ThrottledFromStart() if found.governor == "performance":
            return "Let the board cool first (bench: --cool-to)."
        case ThrottledFromStart() | Throttled():
            return (
                "Let the board cool first, or use the performance governor (bench: --cool-to, "
                "--governor)."
            )
        case UnderVoltage():
            return _supply(found.device)
        case ThrottledByHardware() if found.event.cause == "over-current":
            return "Use a stronger supply, or a lower power mode (nvpmodel)."
        case ThrottledByHardware():
            return "Let it cool first (bench: --cool-to), or add a heat sink or a fan."
        case SlowerThanShown():
            return "Check the board's supply and cooling."
        case Contended():
            return f"Stop other programs {_where(found.workstation)}, or use fewer threads."
        case EmulatorDelayed():
            fewer = (
                ", emulate no more cores than it has," if found.board_cores > found.cores else ","
            )
            return f"Stop other programs on the workstation{fewer} and repeat the run."
        case Unsteady():
            return f"Stop other programs {_where(found.workstation)}, and repeat the run."
        case StreamedBytes() if found.read_bytes < found.streamed_bytes:
            return "Drop the page cache first (bench: --cold), and leave less memory free."
    return ""


def text_fault(found: TextFault) -> str:
    match found.kind:
        case "only white space":
            return "The text contains only white space."
        case "not UTF-8":
            return "The text is not valid UTF-8."
        case "white space":
            return f"{found.share or 0:.0%} of the text is white space."
        case "repeated character":
            return f"The text ends in a repeated character: {found.repeated * 8!r}."
        case "noise":
            return "The text is random characters, not language, code or data."
        case "loop":
            return f"The text ends in a loop: {found.repeated!r}, repeated {found.times} times."


def departure(found: Departure) -> str:
    """Say how a text compares with a reference's."""
    if found.kind == "same":
        return f"The text matches that of {found.reference}."
    other = " (another model, prompt or sampling)" if found.kind == "other model" else ""
    where = (
        f"after {counted(found.at_word, 'word')} (character {found.at_character})"
        if found.at_word
        else "from the first word on"
    )
    return (
        f"The text differs from that of {found.reference}{other} {where}: {found.here!r} instead "
        f"of {found.there!r}."
    )


def weights_note(found: WeightsNote) -> str:
    """Say what a reader of the figures should know of how the weights were held."""
    match found.kind:
        case "not streamed":
            return f"The weights were not streamed: {found.reason}."
        case "lock refused":
            instead = "kept in anonymous memory" if found.is_anonymous else "left in the page cache"
            return (
                f"Locking weights in memory was refused after {format_bytes(found.weights_bytes)}; "
                f"the rest was {instead}. To permit it, log in as root, or add 'USER - memlock "
                "unlimited' to the board's /etc/security/limits.conf."
            )
        case "memory ran short":
            return (
                f"Memory ran short during the run: {format_bytes(found.weights_bytes)} of resident "
                "weights were released, and streamed from then on."
            )


def notes_about_supply(recorded: Sequence[str]) -> list[str]:
    """Say what the firmware had recorded before a run, which may hide a short event in it."""
    if not recorded:
        return []
    said = f"The firmware had recorded {', '.join(recorded)} since the boot, before this run."
    return [f"{said} Until the board restarts, an event shorter than a second cannot be seen."]


def valid_with_repeats(runs: int, within: float) -> str:
    """Say that an imprecise run is valid together with its repeats."""
    return f"Valid with its repeats: the median of {runs} runs is known within {within:.1%}."


def _lacking(found: StorageFull) -> str:
    if not found.missing_steps:
        return "the trace may be incomplete, and the text may be incomplete"
    return (
        f"{found.missing_steps} of {counted(found.steps, 'step')} are missing from the trace, and "
        "the text may be incomplete"
    )


def _swapping(found: Swapping) -> str:
    moved = f"{format_bytes(found.out_bytes)} out"
    if found.in_bytes is not None:
        moved += f" and {format_bytes(found.in_bytes)} in"
    used = ""
    if found.used_after_bytes is not None:
        of_all = f" of {format_bytes(found.total_bytes)}" if found.total_bytes else ""
        used = (
            f" ({format_bytes(found.used_before_bytes)} were in use before, "
            f"{format_bytes(found.used_after_bytes)}{of_all} after)"
        )
    if found.zram:
        return (
            f"The board moved {moved} of compressed memory (zram) during the run{used}: that "
            "takes CPU time."
        )
    return f"The board swapped {moved} during the run{used}."


def _narrower(found: WideSpread) -> str:
    """Say how to know a median better, without the sentence's end."""
    if found.adds_repeats:
        return "Allow more time for repeats (--precision-time)"
    if found.more is None:
        return f"Stop other programs {_where(found.workstation)}"
    return _more(found.more)


def _more_repeats(found: WideSpreadOfRepeats) -> str:
    if found.more_runs > MOST_MORE_RUNS:
        return too_different(found.workstation)
    if found.adds_repeats:
        return _MORE_REPEATS
    return f"Use --repeats {found.runs + found.more_runs} or more."


def _other_text(found: DegenerateText) -> str:
    """Say what to do about a text that is no language."""
    if found.fault.kind not in ("repeated character", "loop"):
        return (
            "Run the model with another program: if its text is the same there, the file is "
            "damaged or its quantisation too coarse."
        )
    if not found.has_prompt:
        return "Give the program a prompt in the format that the model was trained on."
    ends = ", or let the model end its answer (--stop-at-end)" if found.ignores_end else ""
    return f"Use a --prompt in the format that the model was trained on{ends}."


def _more(found: MoreTokens) -> str:
    """Say how to have more tokens timed, without the sentence's end."""
    if found.answer_tokens is not None:
        without = ", or omit --stop-at-end" if found.has_plan else ""
        return (
            f"The model ended its answer after {counted(found.answer_tokens, 'token')}: "
            f"use a --prompt with a longer answer{without}"
        )
    if not found.has_count:
        return f"Let the program generate {found.wanted_tokens} tokens or more"
    return f"Use -n {found.wanted_tokens} or more"


_SUPPLIES = {
    "Raspberry Pi 5": "a 5 V 5 A supply",
    "Raspberry Pi Compute Module 5": "a 5 V 5 A supply",
    "Raspberry Pi 4": "a 5 V 3 A supply",
    "Raspberry Pi Compute Module 4": "a 5 V 3 A supply",
    "Raspberry Pi 3": "a 5 V 2.5 A supply",
}
"""What Raspberry Pi's documentation recommends."""


def _supply(device: str) -> str:
    for name, supply in _SUPPLIES.items():
        if device.startswith(name):
            return f"Use {supply} with a short cable, then restart the board."
    return "Use a stronger supply and a shorter cable."


def _when(event: ThrottleEvent) -> str:
    """Say when something was seen, how long, and by whom."""
    began = f"at {event.from_s:.0f} s" if event.from_s else "from the start"
    lasted = f", for {event.active_s:.0f} s" if event.active_s >= 1 else ""
    return f"{began}{lasted} ({event.source})"


def _throttled_by_hardware(found: ThrottledByHardware) -> str:
    when = _when(found.event)
    if found.event.cause == "over-current":
        return f"Throttled by an over-current event {when}."
    return f"Throttled {when}: the board lowered its clock because of heat{_heat(found.celsius)}."


def _heat(celsius: float | None) -> str:
    return f", at up to {celsius:.0f} °C" if celsius is not None else ""


def _throttled_from_start(found: ThrottledFromStart) -> str:
    governed = f" under the {found.governor} governor" if found.governor else ""
    return (
        f"Throttled from the start: the fastest cores never exceeded "
        f"{found.highest_khz / 1e6:.2f} of their {found.maximum_khz / 1e6:.2f} GHz"
        f"{governed}{_heat(found.celsius)}."
    )


def _contended(found: Contended) -> str:
    when = "per token" if found.per == "token" else "during prefill"
    often = f"{counted(found.switches, 'time')} {when}"
    by = f", mostly by {_process(found.process)}" if found.process else ""
    return (
        f"Contended: the engine's {counted(found.threads, 'thread')} had the CPU for "
        f"{found.busy_share:.0%} of the time and were preempted {often}{by}."
    )


def _process(found: BackgroundProcess) -> str:
    kernel = "kernel, " if found.kernel else ""
    return f"{found.name} ({kernel}{found.share:.0%} of a core)"


def _where(workstation: Workstation | None) -> str:
    if workstation is None:
        return "on the board"
    return (
        "on this machine, whose CPU the virtual board shares (load "
        f"{workstation.load:.1f} on {counted(workstation.cores, 'core')} when the run began)"
    )


def _streamed(found: StreamedBytes) -> str:
    said = (
        f"Each pass read {format_bytes(found.read_bytes)} from storage instead of "
        f"{format_bytes(found.streamed_bytes)} ({format_bytes(found.weights_bytes)} of weights "
        f"less {format_bytes(found.held_bytes)} held in memory)"
    )
    more = found.read_bytes - found.streamed_bytes
    if more < 0:
        return f"{said}: the rest was in the page cache."
    said = f"{said}: {format_bytes(more)} more than needed, with {found.reads} reads."
    if found.released_bytes:
        said += (
            f" Memory ran short, and {format_bytes(found.released_bytes)} of weights were "
            "released: other programs took memory during the run."
        )
    return said
