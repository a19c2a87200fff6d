"""What a terminal and a page both say of a run, each with its label."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from armload.analysis.figures import STAGE_FIGURES
from armload.analysis.run import Run
from armload.analysis.summary import generating
from armload.engines.job import MediaRecord
from armload.engines.placement import CpuOperation, Placement
from armload.engines.trace import Weights
from armload.report import formatting as words
from armload.report import run_words
from armload.report.layout import Table
from armload.report.settings import suite_test_of


def facts(run: Run) -> list[tuple[str, str]]:
    """Return labels and values, of several lines where there are several; empty if unknown."""
    return [
        ("board", run_words.board_line(run)),
        ("members", "\n".join(run_words.member_lines(run))),
        ("model", run_words.model_line(run)),
        ("projector", run_words.projector_line(run)),
        ("image", "\n".join(map(_given, run.images))),
        ("audio", _given(run.audio)),
        ("weights", weights_line(run)),
        ("binary", run_words.binary_line(run)),
        ("computed on", "\n".join(placed(run))),
        ("suite test", suite_test_of(run)),
        ("total", run_words.in_all(run)),
        ("reported", ", ".join(each.words for each in run.reported)),
        ("p50 per token", run_words.median_range(run)),
        ("predicted", "\n".join(_predicted(run))),
        ("energy", run_words.energy_line(run)),
        ("peak memory", _peaks(run)),
    ]


def _predicted(run: Run) -> list[str]:
    token = run_words.prediction_line(run)
    return [*([token] if token else []), *run_words.media_prediction_lines(run)]


def stage_table(run: Run) -> Table | None:
    """Lay out what each part of a run took in which the model saw or heard; none of other runs."""
    stages = run.summary.stages
    return Table.of(STAGE_FIGURES, stages) if stages else None


def placed(run: Run) -> list[str]:
    """Say which device computed, and which operations fell back to the CPU; nothing of a CPU."""
    if run.plan is None or not run.plan.on_gpu:
        return [] if run.plan is None or run.plan.device is None else ["CPU, as requested"]
    if run.placement is None:
        return ["not known: the program did not tell"]
    lines = [
        ", ".join(filter(None, (each.name, each.description))) for each in run.placement.devices
    ] or ["CPU: the GPU computed nothing"]
    lacking = run.placement.unsupported
    if lacking:
        lines.append(f"CPU, because the GPU lacks them: {_listed(lacking, run.placement)}")
    left = [each for each in run.placement.on_cpu if not each.unsupported]
    if left:
        lines.append(f"CPU, by llama.cpp's choice: {_listed(left, run.placement)}")
    return lines


def _listed(operations: Sequence[CpuOperation], placement: Placement) -> str:
    return ", ".join(
        f"{each.name} {each.type}".rstrip()
        + f" ({each.operations / max(placement.passes, 1):.3g} per pass)"
        for each in operations
    )


def _given(media: MediaRecord | None) -> str:
    if media is None:
        return ""
    size = "" if media.width is None else f"{media.width:,} × {media.height:,} pixels"
    length = "" if media.seconds is None else words.seconds(media.seconds)
    return ", ".join(filter(None, (media.name, size, length)))


def _peaks(run: Run) -> str:
    if run.memory is None:
        return ""
    resident, virtual = words.size(run.memory.max_rss_bytes), words.size(run.memory.max_vms_bytes)
    return f"{resident} resident, {virtual} virtual"


def weights_line(run: Run) -> str:
    """Say how the weights were held; nothing where llama.cpp's usual way was left to it."""
    if run.trace is None or not run.trace.weights:
        asked = run.plan is not None and run.plan.weights == "mapped"
        return "mapped, as requested" if asked else ""
    last = run.trace.weights[-1]
    if last.weights == "mapped":
        return f"mapped: {last.reason}"
    experts = run.summary.experts
    missed = experts.missed_bytes_per_token if experts else 0.0
    streamed = words.size(last.streamed_bytes + round(missed))
    parts = [
        *_held(run, last),
        *_experts(run, last),
        f"{streamed} streamed per token{_read(run, last)}",
        "direct and buffered reads" if last.reads == "both" else f"{last.reads} reads",
        f"window {words.size(last.window_bytes)}",
        _faults(run),
    ]
    wanted = last.requested_bytes
    requested = "what fits" if wanted is None else f"{words.size(wanted)} resident"
    return f"streamed: {', '.join(filter(None, parts))}; requested: {requested}"


def _held(run: Run, last: Weights) -> list[str]:
    reported = run.steps[-1].locked_bytes if run.steps else None
    kernel = "" if reported is None else f" (VmLck {words.size(reported)})"
    kinds = (
        (last.anonymous_bytes, "in anonymous memory"),
        (last.cached_bytes, "left in the page cache"),
        (last.released_bytes, "released"),
    )
    return [
        f"{words.size(last.locked_bytes)} locked{kernel}",
        *(f"{words.size(count)} {what}" for count, what in kinds if count),
    ]


def _experts(run: Run, last: Weights) -> list[str]:
    found = run.summary.experts
    if not last.expert_bytes or found is None:
        return []
    return [
        f"{words.size(last.expert_slot_bytes)} of {words.size(last.expert_bytes)} for experts",
        f"{found.hit_rate:.0%} hits",
        f"{words.seconds(found.wait_s_per_token)} waiting per token",
    ]


def _read(run: Run, last: Weights) -> str:
    steps = [step for step in generating(run.steps) if step.step >= last.before_step]
    counted = [step.read_bytes for step in steps if step.read_bytes is not None]
    return f" (measured {words.size(round(median(counted)))})" if counted else ""


def _faults(run: Run) -> str:
    steps = generating(run.steps)
    tokens = sum(step.output_tokens for step in steps)
    if not tokens:
        return ""
    faults = sum(step.major_faults for step in steps)
    if faults < tokens:
        return f"{words.counted(faults, 'major fault')} in {words.counted(tokens, 'token')}"
    return f"{faults / tokens:,.1f} major faults per token"
