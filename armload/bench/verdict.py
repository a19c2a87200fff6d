"""Whether a run's figures may be believed."""

from __future__ import annotations

from armload.bench.plan import Plan
from armload.bench.run import Conditions, Exit, Step, Trace, Verdict
from armload.bench.summary import generating, quantile

UNSTEADY_FROM = 2.0
"""The 90th percentile of the time per token must stay below so many medians."""

_SPREAD_NEEDS_STEPS = 10
_SAME_CHARACTER_RUN = 24


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
    if ended.status == 0:
        reasons += doubts_about_text(text)
    reasons += _doubts_about_spread(steps)
    if after is not None:
        if after.boot_id != before.boot_id:
            reasons.append("The board rebooted during the run.")
        swapped = after.swap_used_bytes - before.swap_used_bytes
        if swapped > 1 << 20:
            reasons.append(f"The board swapped {swapped >> 20} MiB out during the run.")
    return Verdict(valid=not reasons, reasons=tuple(reasons))


def doubts_about_text(text: str) -> list[str]:
    """Return what shows that a text is no language: speed bought with garbage is worthless."""
    if not text.strip():
        return ["The model wrote nothing but white space."]
    doubts = []
    # A token may end inside a character, and so may the last one.
    if "\ufffd" in text[:-1]:
        doubts.append("The text is not valid UTF-8.")
    end = text.rstrip()[-_SAME_CHARACTER_RUN:]
    if len(end) == _SAME_CHARACTER_RUN and len(set(end)) == 1:
        doubts.append(f"The text ends in one character over and over: {end[:8]!r}.")
    return doubts


def _doubts_about_spread(steps: tuple[Step, ...]) -> list[str]:
    # Tokens that read storage are slow for a reason that the run's sentence gives.
    samples = [
        step.duration_s
        for step in generating(steps)
        if not step.read_bytes and not step.major_faults
    ]
    if len(samples) < _SPREAD_NEEDS_STEPS:
        return []
    median, slow = quantile(samples, 50), quantile(samples, 90)
    if slow < UNSTEADY_FROM * median:
        return []
    return [
        (
            f"Unsteady: one token in ten took {slow / median:.1f} times the median or more, "
            "without reading storage. Something else used the CPU: end it and run again."
        )
    ]
