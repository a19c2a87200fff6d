"""Whether a run's figures may be believed."""

from __future__ import annotations

from armload.bench.plan import Plan
from armload.bench.run import Conditions, Exit, Step, Trace, Verdict
from armload.bench.sanity import doubts_about_text
from armload.bench.statistics import median_interval, tokens_to_know
from armload.bench.summary import generating, quantile

UNSTEADY_FROM = 2.0
"""The 90th percentile of the time per token must stay below so many medians."""

CONTENDED_BELOW = 0.80
"""Share of wall time that the engine's threads must run, when nothing is read from storage."""

THROTTLED_BELOW, THROTTLED_FROM = 0.95, 0.10
"""A tenth of the time below 95 % of the frequency that the run has reached is throttling."""

MEDIAN_WITHIN = 0.10
"""A median that is not known better than this is no figure to compare."""

_SPREAD_NEEDS_STEPS = 10
_SWITCHES_PER_TOKEN = 1


def judge(
    plan: Plan,
    *,
    ended: Exit,
    header: Trace | None,
    steps: tuple[Step, ...],
    text: str,
    before: Conditions,
    after: Conditions | None,
) -> Verdict:
    """Collect every reason to doubt the run; it is valid when there is none."""
    reasons = []
    if ended.status != 0:
        reasons.append(ended.meaning)
    if header is None:
        reasons.append("There is no trace: the program never began to decode.")
    elif ended.status == 0:
        generated = sum(step.tokens for step in generating(steps))
        # The last token is sampled and never decoded.
        if not plan.stop_at_end and generated != plan.n_predict - 1:
            reasons.append(
                f"{plan.n_predict} tokens were asked for and the trace holds {generated + 1}."
            )
        read = sum(step.tokens for step in steps if step.phase == "prompt")
        if plan.prompt_tokens is not None and read != plan.prompt_tokens:
            reasons.append(
                f"A prompt of {plan.prompt_tokens} tokens was asked for, and {read} were read."
            )
    if ended.status == 0:
        reasons += doubts_about_text(text, of_words=plan.prompt_tokens is not None)
    reasons += _doubts_about_frequency(steps)
    if header is not None:
        reasons += _doubts_about_the_cpu(steps, header)
    reasons += _doubts_about_spread(steps)
    if after is not None:
        reasons += _doubts_about_the_board(before, after)
    return Verdict(valid=not reasons, reasons=tuple(reasons))


def _doubts_about_the_board(before: Conditions, after: Conditions) -> list[str]:
    doubts = []
    if after.boot_id != before.boot_id:
        doubts.append("The board rebooted during the run.")
    swapped = after.swap_used_bytes - before.swap_used_bytes
    if swapped > 1 << 20:
        doubts.append(f"The board swapped {swapped >> 20} MiB out during the run.")
    return doubts


def _doubts_about_frequency(steps: tuple[Step, ...]) -> list[str]:
    # The fastest core counts: the engine is on it, and slower clusters never reach it.
    known = [(step, max(step.cpu_khz)) for step in generating(steps) if any(step.cpu_khz)]
    if len(known) < _SPREAD_NEEDS_STEPS:
        return []
    highest = max(khz for _, khz in known)
    slowed = [(step, khz) for step, khz in known if khz < THROTTLED_BELOW * highest]
    share = sum(step.duration_s for step, _ in slowed) / sum(step.duration_s for step, _ in known)
    if not slowed or share < THROTTLED_FROM:
        return []
    lowest = min(khz for _, khz in slowed)
    degrees = [step.celsius for step, _ in slowed if step.celsius is not None]
    heat = f", at up to {max(degrees):.0f} °C" if degrees else ""
    return [
        (
            f"Throttled: for {share:.0%} of the time no core ran above "
            f"{THROTTLED_BELOW * highest / 1e6:.2f} GHz, down to {lowest / 1e6:.2f} of "
            f"{highest / 1e6:.2f} GHz{heat}. Cool the board, or set its governor to performance."
        )
    ]


def _doubts_about_the_cpu(steps: tuple[Step, ...], header: Trace) -> list[str]:
    quiet = _without_storage(steps)
    wall_s = sum(step.duration_s for step in quiet)
    if len(quiet) < _SPREAD_NEEDS_STEPS or wall_s <= 0:
        return []
    busy = sum(step.cpu_ns for step in quiet) / 1e9 / (wall_s * header.threads)
    switches = sum(step.involuntary_switches for step in quiet) / sum(step.tokens for step in quiet)
    if busy >= CONTENDED_BELOW or switches < _SWITCHES_PER_TOKEN:
        return []
    threads = f"{header.threads} thread{'s' if header.threads > 1 else ''}"
    return [
        (
            f"Contended: the engine's {threads} had the CPU for {busy:.0%} of the time and were "
            f"pushed aside {switches:.0f} times per token. End what else runs there, or take "
            "fewer threads."
        )
    ]


def _doubts_about_spread(steps: tuple[Step, ...]) -> list[str]:
    quiet = _without_storage(steps)
    samples = [step.duration_s / step.tokens for step in quiet]
    if len(samples) < _SPREAD_NEEDS_STEPS:
        return []
    median, slow = quantile(samples, 50), quantile(samples, 90)
    if slow >= UNSTEADY_FROM * median:
        return [
            (
                f"Unsteady: one token in ten took {slow / median:.1f} times the median or more, "
                "without reading storage. Something else used the CPU: end it and run again."
            )
        ]
    interval = median_interval(samples)
    if interval is None:
        return []
    off = max(interval.high / median - 1, 1 - interval.low / median)
    if off <= MEDIAN_WITHIN:
        return []
    return [
        (
            f"Too few tokens for their spread: the median is known to {off:.0%} only. "
            f"About {tokens_to_know(samples, MEDIAN_WITHIN / 2)} would do: say so with -n, or "
            "repeat the run."
        )
    ]


def _without_storage(steps: tuple[Step, ...]) -> list[Step]:
    # Tokens that read storage are slow for a reason that the run's sentence gives.
    return [step for step in generating(steps) if not step.read_bytes and not step.major_faults]
