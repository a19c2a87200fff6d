"""A run in the words that table, chart and page share."""

from __future__ import annotations

from collections import Counter

from armload.analysis.causes import CAUSES, Cause, causes
from armload.analysis.columns import Cores, cores_of
from armload.analysis.fitted import per_token
from armload.analysis.repeats import is_disturbed
from armload.analysis.run import Member, Run
from armload.analysis.summary import generating
from armload.core.shell import join
from armload.core.values import three_figures
from armload.deploy.exit_reason import INTERRUPTED
from armload.engines.llama_cpp import repacked
from armload.report.formatting import counted, joules_per, rate, seconds, size, weights

_SOURCES = {
    "operations": "computing timed by operation",
    "roofline": "computing estimated from the board's facts",
    "unknown": "computing unknown",
}


_TIMES_FROM = 10
"""Ratio from which a difference is no longer given in percent."""


def headline(run: Run) -> str:
    """Say the run's result in one sentence, and first that it is not valid if it is not."""
    decode_tps, median_s = run.summary.decode_tps, run.summary.median_s
    if median_s is not None or decode_tps is not None:
        said = speed(median_s, decode_tps, run.summary.unit)
    elif run.plan is None:
        wall_s = run.summary.wall_s
        lasted = "" if wall_s is None else f" for {seconds(wall_s)}"
        said = f"{run.binary.program} ran{lasted}"
    else:
        return f"No token was generated on {run.board.name}"
    doubt = "" if run.verdict.valid else "Not valid: "
    depth = run.plan.depth_tokens if run.plan else 0
    after = f" at a context of {depth:,} tokens" if depth else ""
    return f"{doubt}{said}{after} on {run.board.name}"


def speed(median_s: float | None, decode_tps: float | None, unit: str = "token") -> str:
    """Say how fast tokens came, as every headline says it: by their median where that is known.

    Args:
        unit: what came; also ``text``.
    """
    if not median_s:
        return f"{rate(decode_tps)} tokens per second (mean)"
    per_s = f"{rate(1 / median_s)} {unit}s per second, " if median_s <= 1 else ""
    return f"{seconds(median_s)} per {unit} ({per_s}median)"


def limit_sentence(run: Run) -> str:
    """Say what limited the run; nothing where something from outside did, but for storage."""
    return "" if is_disturbed(run) and run.limit.cause != "storage" else run.limit.sentence


def advice(run: Run) -> str:
    """Return what to try next; nothing where the figures are too doubtful, or somebody else's."""
    if run.is_excerpt:
        return ""
    return run.limit.advice if run.verdict.valid or run.limit.cause == "storage" else ""


def started(run: Run) -> str:
    """Say when the run began: ``2026-11-21 02:15:00 UTC``."""
    return run.started_utc.replace("T", " ").replace("+00:00", " UTC")


def model_name(run: Run) -> str:
    """Name the model, with its quantisation where that is known."""
    model = run.model
    return f"{model.name} ({model.quantisation})" if model.quantisation else model.name


def what_ran(run: Run) -> str:
    """Name the model in few words; for a watched program its name, and its model if it has one."""
    model = f"{run.model.name} {run.model.quantisation}".rstrip()
    return ": ".join(filter(None, (run.binary.program, model))) if run.plan is None else model


def member_lines(run: Run) -> list[str]:
    """Say what each member of a group computed, and what passed between it and the first."""
    if run.spread is None:
        return []
    found = {member.board.name: member for member in run.members}
    lines = []
    for share in run.spread.shares:
        parts = [
            f"{share.board}: {counted(share.layers, 'layer')}",
            f"{size(share.weights_bytes)} of weights",
        ]
        member = found.get(share.board)
        if member is not None and member.memory is not None:
            parts.append(f"peak RSS {size(member.memory.max_rss_bytes)}")
        if member is not None and member.sent_bytes is not None:
            parts.append(f"received {size(member.sent_bytes)}, sent {size(member.received_bytes)}")
        if member is not None:
            parts += _of_samples(member)
        if (link := run.spread.link_to(share.board)) is not None:
            parts.append(
                f"connection: round trip {seconds(link.round_trip_s)}, "
                f"{size(round(link.to_bytes_per_s))}/s to it and "
                f"{size(round(link.from_bytes_per_s))}/s from it"
            )
        lines.append(", ".join(parts))
    if run.spread.chosen is not None:
        lines.append(run.spread.chosen.reason)
    return lines


def _of_samples(member: Member) -> list[str]:
    warm = [each.celsius for each in member.samples if each.celsius is not None]
    if not warm and member.after is not None and member.after.celsius is not None:
        warm = [member.after.celsius]
    cpu = [f"{seconds(member.samples[-1].cpu_s)} of CPU time"] if member.samples else []
    return [*cpu, *([f"up to {max(warm):.0f} °C"] if warm else [])]


def model_line(run: Run) -> str:
    """Describe the model; nothing if a watched program has none."""
    model = run.model
    known = [
        model.architecture,
        model.quantisation,
        f"{weights(model.parameters)} weights" if model.parameters is not None else "",
        size(model.size_bytes) if model.size_bytes is not None else "",
    ]
    described = ", ".join(each for each in known if each)
    return f"{model.name} ({described})" if described else model.name


def projector_line(run: Run) -> str:
    """Describe the projector; nothing of a model that saw and heard nothing."""
    found = run.projector
    if found is None:
        return ""
    return f"{found.kind}, {size(found.size_bytes)}, SHA-256 {found.sha256[:12]}"


def command(run: Run) -> str:
    """Return the command line, quoted so that a POSIX shell runs the same program again."""
    return join(run.command)


def binary_line(run: Run) -> str:
    """Describe the program."""
    binary = run.binary
    if not binary.build_id:
        known = [
            size(binary.size_bytes) if binary.size_bytes is not None else "",
            f"SHA-256 {binary.sha256[:12]}" if binary.sha256 else "as found on the board",
        ]
        return f"{binary.program} (not built by armload: {', '.join(filter(None, known))})"
    known = [binary.engine_and_source, binary.compiler, f"build {binary.build_id}"]
    if binary.prebuilt_in:
        known.append(f"prebuilt in {binary.prebuilt_in}")
    return f"{binary.program} for {binary.target} ({', '.join(known)})"


def result_line(run: Run) -> str:
    """Say what an engine without tokens measured; nothing for any other."""
    return ", ".join(f"{name} {value}" for name, value in (run.result or {}).items())


def board_line(run: Run) -> str:
    """Describe the board."""
    described = f": {run.board.description}" if run.board.description else ""
    return f"{run.board.name}{described}"


def verdict_line(run: Run) -> str:
    """Say whether the figures may be believed; each reason why not is a line."""
    if run.verdict.valid:
        return "valid"
    return "not valid: " + "\n".join(_whole(reason) for reason in run.verdict.reasons)


def short_verdict(run: Run) -> str:
    """Say the same in few words, with the first reason: ``not valid (contended)``."""
    ended = run.exit
    if run.verdict.valid:
        return "valid"
    if ended.status == 0:
        return " ".join(["not valid", *(f"({each.name})" for each in run.verdict.findings[:1])])
    if ended.kind == "stopped":
        return "stopped on request"
    why = f"exit {ended.status}" if ended.kind == "exit status" else ended.kind
    return f"{'interrupted' if ended.kind in INTERRUPTED else 'failed'}: {why}"


def causes_of(run: Run) -> dict[int, Cause]:
    """Return the cause of each slow token, by the number of its step."""
    found = causes(
        run.steps,
        used_cores(run),
        storage_read_bytes_per_s=run.board.storage_read_bytes_per_s,
    )
    if run.spread is None:
        return found
    # The first member's threads also pause for the others.
    return {step: "unexplained" if each == "contention" else each for step, each in found.items()}


def used_cores(run: Run) -> Cores:
    """Return the cores that a run could use."""
    return cores_of(run.trace, run.before, run.plan.cpus if run.plan else None)


def slow_tokens(run: Run) -> str:
    """Say how many tokens were slow, and by which causes; nothing where none was."""
    found = causes_of(run)
    if not found:
        return ""
    counted = Counter(found.values())
    each = ", ".join(f"{counted[cause]} {cause}" for cause in CAUSES if counted[cause])
    decoded = len(generating(run.steps))
    return f"{len(found)} of {decoded} tokens ({each})"


def in_all(run: Run) -> str:
    """Say the sums: prefill is the first token, decode the others."""
    summary = run.summary
    if summary.prefill_s is None and summary.decode_s is None:
        return ""
    parts = []
    if summary.prefill_s is not None:
        tokens = counted(summary.prefill_tokens, "token")
        parts.append(f"prefill {tokens} in {seconds(summary.prefill_s)}")
    if summary.decode_s is not None:
        tokens = counted(summary.decode_tokens, "token")
        parts.append(f"decode {tokens} in {seconds(summary.decode_s)}")
    if run.watched is not None:
        parts.append("as reported by the program")
    parts.append(f"{seconds(summary.wall_s)} including loading")
    return ", ".join(parts)


def median_range(run: Run) -> str:
    """Say what the run's median time per token is, and between which bounds it lies.

    One that is repeated to know the median is shown without them: all repeats place it better.
    """
    median, within_s = seconds(run.summary.median_s), run.summary.median_within_s
    if within_s is None:
        return ""
    if run.place is not None and run.place.precision is not None:
        return f"{median} (median of this run)"
    return f"{median}, 95% CI {seconds(within_s.low)} to {seconds(within_s.high)}"


def prediction_line(run: Run) -> str:
    """Say what was expected of the run beside what was measured; nothing without a prediction."""
    found = run.prediction
    if found is None or found.token_s is None:
        return ""
    is_emulated = any(each.kind == "emulated" for each in found.notes)
    on = " for the emulated board" if is_emulated else ""
    how = f"{found.verdict}, {_SOURCES[found.compute]}"
    expected = f"{per_token(found.token_s)} per token{on} ({how})"
    median_s = run.summary.median_s
    if median_s is None or run.summary.texts is not None:
        return expected
    return f"{expected}; measured {seconds(median_s)}, {_beside(median_s, found.token_s.value)}"


def _beside(measured: float, expected: float) -> str:
    """Say how far a measured figure is from the expected one."""
    ratio = measured / expected
    if ratio >= _TIMES_FROM:
        return f"{ratio:.0f} times as long"
    return f"{abs(ratio - 1):.0%} {'more' if ratio > 1 else 'less'}"


def media_prediction_lines(run: Run) -> list[str]:
    """Say what was expected before the first token of a run that saw or heard, and of memory."""
    found = run.prediction
    if found is None or found.media is None:
        return []
    encoder_s = {each.name: each.seconds for each in run.summary.stages}.get("encoder")
    how = _SOURCES[found.media.compute]
    times = (
        (f"encoder ({how})", found.media.encoder_s, encoder_s),
        ("first token", found.ttft_s, run.summary.ttft_s),
    )
    lines = [
        f"{what}: {per_token(expected)}"
        + (f"; measured {seconds(had)}, {_beside(had, expected.value)}" if had else "")
        for what, expected, had in times
        if expected is not None and expected.value
    ]
    if found.memory is not None and run.memory is not None and found.verdict == "fits":
        peak, expected = run.memory.max_rss_bytes, found.memory.peak_bytes
        beside = _beside(peak, expected)
        lines.append(f"peak memory: {size(expected)}; measured {size(peak)}, {beside}")
    return lines


def background_line(run: Run) -> str:
    """Say what else used the CPU meanwhile; nothing where nobody did, or it is not known."""
    return ", ".join(
        f"{process.name}{' (the kernel)' if process.kernel else ''} {process.share:.0%} of a core"
        for process in run.background_processes or ()
    )


def energy_line(run: Run) -> str:
    """Say what the run took from its board's supply; nothing without a meter."""
    energy = run.energy
    if energy is None:
        return ""
    figures = joules_per(
        (energy.joules_per_token, "token"), (energy.joules_per_prompt_token, "prompt token")
    )
    if not figures and energy.joules is not None:
        figures = f"{three_figures(energy.joules)} J"
    return "; ".join(filter(None, (figures, energy.power)))


def setting_line(run: Run) -> str:
    """Say what was changed on the board for the run; nothing where it was left as it was."""
    cache = {
        None: "",
        "dropped": "cold: page cache dropped",
        "evicted": "cold: model evicted from the page cache",
        "as found": "not cold: page cache not dropped",
    }[run.cache]
    cpus = f"cores {run.plan.cpus}" if run.plan and run.plan.cpus else ""
    governor = f"governor {run.governor}" if run.governor else ""
    return ", ".join(part for part in (cpus, governor, cache, _repacking(run)) if part)


def _repacking(run: Run) -> str:
    if run.plan is None or repacked(run.command):
        return ""
    if repacked(run.plan.extra):
        return "weights not repacked: too little free memory for a second copy"
    return "weights not repacked"


def reference_line(run: Run) -> str:
    """Say how the text compares with a reference's; nothing without one."""
    return run.reference.sentence if run.reference else ""


def _whole(reason: str) -> str:
    return f"{reason[:1].upper()}{reason[1:].rstrip('.')}."
