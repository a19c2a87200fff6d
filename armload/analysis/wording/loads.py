"""What a service sustains under load, and why requests were slow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from armload.analysis.load.findings import (
    AnswersCutOff,
    Cancelled,
    ClientLate,
    Incomplete,
    LoadFigures,
    NoneSucceeded,
    TokensUncounted,
)
from armload.core.values import counted, format_bytes, percentage

if TYPE_CHECKING:
    from armload.analysis.load.assessed import AssessedPoint, Cause

_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def doubt(found: LoadFigures) -> str:
    match found:
        case NoneSucceeded():
            return "No request succeeded."
        case ClientLate():
            return (
                f"The client was late: 1% of the requests began {found.late_s * 1000:.0f} ms or "
                f"more behind schedule; up to {found.allowed_s * 1000:.0f} ms is acceptable. This "
                "machine is too busy, or too slow for this rate."
            )
        case Cancelled():
            return (
                f"Ended early: {found.cancelled:,} of {found.requests:,} requests were cancelled."
            )
        case Incomplete():
            of_all = f" of {found.requests:,}" if found.requests else ""
            return (
                f"Incomplete: only {found.recorded:,}{of_all} requests were recorded. The load is "
                "still running, or its command was killed."
            )
        case AnswersCutOff():
            return (
                f"{found.cut_off:,} of {counted(found.answers, 'answer')} ended before the limit, "
                "because prompt and answer filled the context: the server generated fewer tokens "
                "than requested. Use a larger --context, or shorter requests."
            )
        case TokensUncounted():
            return (
                f"The service reported no token count for {found.uncounted:,} of "
                f"{counted(found.answers, 'answer')}. These have no time per output token and "
                "count as outside the SLO: remove tpot from --slo."
            )


def sustains_all(top: AssessedPoint, *, surely: bool) -> str:
    """Say that a service sustains every point of a load."""
    return f"{_sustains(top, surely=surely)} or more within the SLO ({_share(top)})."


def limited(
    below: AssessedPoint | None,
    point: AssessedPoint,
    cause: Cause | None,
    failure: str,
    *,
    surely: bool,
) -> str:
    """Say what a service sustains and why it does not sustain more.

    Args:
        below: the highest point that is sustained; none where there is none.
        point: the lowest that is not.
        cause: of most of its slow requests.
        failure: the most frequent kind, where failures outnumber slow requests; else empty.
    """
    reason = "" if cause is None else _reason(point, cause)
    if failure:
        failed = sum(point.metrics.failed.values())
        reason = f"requests fail: {failed} of {point.metrics.requests}, most often as {failure}"
    if below is None:
        sure = " with 95% confidence" if surely else ""
        start = f"Does not sustain {point.label} within the SLO{sure} ({_share(point)})."
        return f"{start} {_sentence(reason)}" if reason else start
    return (
        f"{_sustains(below, surely=surely)} within the SLO ({_share(below)}). "
        f"At {point.label} ({_share(point)}), {reason or 'it does not'}."
    )


def why_slow(point: AssessedPoint) -> str:
    """Say what made most of a point's slow requests slow; nothing where none was."""
    cause = point.main_cause
    return "" if cause is None else _sentence(_reason(point, cause))


def _sustains(point: AssessedPoint, *, surely: bool) -> str:
    return f"Sustains {point.label}{', with 95% confidence,' if surely else ''}"


def _share(point: AssessedPoint) -> str:
    found = point.metrics.goodput
    assert found is not None  # noqa: S101 - points without objectives have no capacity
    return f"{percentage(found.share)} of the requests"


def _reason(point: AssessedPoint, cause: Cause) -> str:
    board = point.telemetry
    said = {
        "client late": "the client sent requests late",
        "queued": "requests queue",
        "blocked by a prompt": "prompts of other requests hold up answers",
        "shared steps": "requests slow each other down",
        "paging": "the server waits for storage",
        "throttling": "the cores throttle",
        "own length": "the requests are too long for the SLO even when served alone",
        "unexplained": "the records do not show why requests are slow",
    }[cause]
    facts = []
    if cause == "queued" and board.slots and board.all_busy_share is not None:
        facts.append(f"{_slots(board.slots)} busy {percentage(board.all_busy_share)} of the time")
    if cause == "blocked by a prompt" and board.prompt_share is not None:
        facts.append(
            f"steps with prompts took {percentage(board.prompt_share)} of the server's time"
        )
    if cause == "throttling" and board.throttled_share is not None:
        hottest = f", at up to {board.celsius_max:.0f} °C" if board.celsius_max else ""
        facts.append(
            f"{percentage(board.throttled_share)} of the time they ran below their highest "
            f"frequency{hottest}"
        )
    if cause == "paging" and board.storage_share is not None:
        read = f", reading {format_bytes(board.read_bytes)}" if board.read_bytes else ""
        facts.append(f"{percentage(board.storage_share)} of the steps' time{read}")
    if cause in ("queued", "shared steps", "own length"):
        facts += _decode_facts(point)
    return f"{said}: {', and '.join(facts)}" if facts else said


def _decode_facts(point: AssessedPoint) -> list[str]:
    board, limit = point.telemetry, point.limit
    if limit is not None and limit.cause != "unknown":
        return [f"decode steps were limited by {limit.cause}"]
    if board.decode_step_s is None or board.sequences_per_step is None:
        return []
    step_ms, requests = board.decode_step_s * 1000, board.sequences_per_step
    return [f"a decode step took {step_ms:.3g} ms for {requests:.1f} requests"]


def _slots(count: int) -> str:
    if count == 1:
        return "the only slot was"
    if count == 2:
        return "both slots were"
    return f"all {_NUMBERS[count] if count < len(_NUMBERS) else count} slots were"


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."
