"""Whether a run's figures may be believed."""

from __future__ import annotations

from armload.bench.plan import Plan
from armload.bench.run import Conditions, Exit, Step, Trace, Verdict
from armload.bench.summary import generating

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
