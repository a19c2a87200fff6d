"""What a service sustains, and what stands in the way of more: a sentence with figures."""

from __future__ import annotations

from collections.abc import Sequence

from armload.analysis.load.assessed import CAUSES, AssessedPoint, Cause
from armload.analysis.load.metrics import Goodput
from armload.core.values import Value, format_bytes, percentage

SUSTAINED_FROM = 0.90
"""Share of the requests that must be within all objectives."""

ENDED_BY_THE_CLIENT = frozenset({"cancelled", "unknown"})
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


class Capacity(Value):
    """What a service sustains.

    Attributes:
        rate: the highest at which nine of ten requests are within the objectives, in requests/s;
            none in a closed loop, and where none is so.
        concurrency: likewise the most clients, in a closed loop.
        bottleneck: what made most of the slow requests slow at the next point above; none where
            there is none.
        sentence: for people.
    """

    rate: float | None = None
    concurrency: int | None = None
    bottleneck: Cause | None = None
    sentence: str


def capacity_of(points: Sequence[AssessedPoint], *, surely: bool = False) -> Capacity | None:
    """Say what a service sustains; none without objectives, or without points.

    A point above one that is not sustained counts for nothing: it was luck. One that was ended
    before the service had failed at it shows nothing, and neither does one that is not sustained
    because the client sent requests late.

    Args:
        surely: a point counts as sustained only if that is sure with 95% confidence.
    """
    ordered = sorted(filter(_shows_something, points), key=lambda point: point.pace)
    if not ordered or any(point.metrics.goodput is None for point in ordered):
        return None
    below: AssessedPoint | None = None
    for point in ordered:
        if not is_sustained(_goodput(point), surely=surely):
            return _limited(below, point, surely=surely)
        below = point
    top = ordered[-1]
    return Capacity(
        rate=top.rate,
        concurrency=top.concurrency,
        sentence=f"{_sustains(top, surely=surely)} or more within the SLO ({_share(top)}).",
    )


def why_slow(point: AssessedPoint) -> str:
    """Say what made most of a point's slow requests slow; nothing where none was."""
    cause = main_cause(point)
    return "" if cause is None else _sentence(_reason(point, cause))


def main_cause(point: AssessedPoint) -> Cause | None:
    """Return what made most of a point's slow requests slow; none where none was."""
    found = [cause for cause in CAUSES if point.slow.get(cause)]
    return max(found, key=lambda cause: point.slow[cause], default=None)


def _limited(below: AssessedPoint | None, point: AssessedPoint, *, surely: bool) -> Capacity:
    cause = main_cause(point)
    failed = point.metrics.failed
    if sum(failed.values()) > sum(point.slow.values()):
        own = {kind: count for kind, count in failed.items() if kind not in ENDED_BY_THE_CLIENT}
        kinds = max(own or failed, key=lambda kind: failed[kind])
        cause = None
        reason = (
            f"requests fail: {sum(failed.values())} of {point.metrics.requests}, most often as "
            f"{kinds}"
        )
    else:
        reason = "" if cause is None else _reason(point, cause)
    if below is None:
        sure = " with 95% confidence" if surely else ""
        start = f"Does not sustain {point.label} within the SLO{sure} ({_share(point)})."
        sentence = f"{start} {_sentence(reason)}" if reason else start
    else:
        sentence = (
            f"{_sustains(below, surely=surely)} within the SLO ({_share(below)}). "
            f"At {point.label} ({_share(point)}), {reason or 'it does not'}."
        )
    return Capacity(
        rate=below.rate if below else None,
        concurrency=below.concurrency if below else None,
        bottleneck=cause,
        sentence=sentence,
    )


def _shows_something(point: AssessedPoint) -> bool:
    metrics, goodput = point.metrics, point.metrics.goodput
    if goodput and is_the_clients_fault(goodput):
        return False
    return not metrics.cut_short or not set(metrics.failed) <= ENDED_BY_THE_CLIENT


def is_sustained(found: Goodput, *, surely: bool) -> bool:
    """Say whether enough requests were within the objectives, or, for sure, that they are."""
    if surely:
        return found.interval is not None and found.interval.low >= SUSTAINED_FROM
    return found.share >= SUSTAINED_FROM


def is_the_clients_fault(found: Goodput) -> bool:
    """Say whether a rate would be sustained if all requests had been sent on time."""
    return found.share < SUSTAINED_FROM <= found.share_if_on_time


def _sustains(point: AssessedPoint, *, surely: bool) -> str:
    return f"Sustains {point.label}{', with 95% confidence,' if surely else ''}"


def _goodput(point: AssessedPoint) -> Goodput:
    found = point.metrics.goodput
    assert found is not None  # noqa: S101 - points without objectives are sorted out before
    return found


def _share(point: AssessedPoint) -> str:
    return f"{percentage(_goodput(point).share)} of the requests"


def _reason(point: AssessedPoint, cause: Cause) -> str:
    board = point.telemetry
    said = {
        "client late": "the client itself is late",
        "queued": "requests queue",
        "blocked by a prompt": "prompts of other requests hold up answers",
        "shared steps": "requests slow each other down",
        "paging": "the server waits for storage",
        "throttling": "the cores throttle",
        "own length": "the requests are too long for the SLO even without others",
        "unexplained": "requests are slow for a reason that the records do not show",
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
