"""What a service sustains, and what stands in the way of more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from armload.analysis.load.assessed import AssessedPoint, Cause
from armload.analysis.load.findings import ClientLate, ClientLimited, ServiceEnded
from armload.analysis.load.records import RateVerdict
from armload.analysis.statistics import Interval
from armload.core.values import Value, counted, format_bytes

FAILED_BY_THE_CLIENT = frozenset({"cancelled", "unknown", "client-limit"})

_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_REASONS: Mapping[Cause, str] = {
    "client late": "the client sent requests late",
    "held back": "requests wait for --max-concurrency",
    "queued": "requests queue",
    "blocked by a prompt": "prompts of other requests hold up answers",
    "shared steps": "requests slow each other down",
    "paging": "the server waits for storage",
    "throttling": "the cores are throttled",
    "own length": "the requests are too long for the SLO even when served alone",
    "unexplained": "the records do not show why requests are slow",
}


class Capacity(Value):
    """What a service sustains: at least nine of ten requests within the objectives.

    Attributes:
        rate: the highest that is sustained with 95% confidence, in requests/s; none in a closed
            loop, and where none is.
        concurrency: likewise the most clients, in a closed loop.
        refuted: the lowest rate, or number of clients, that is not sustained; none where there is
            none.
        most_per_s: requests/s with all slots busy, where a search has measured them.
        bottleneck: what made most of the slow requests slow at the point that is not sustained.
        headline, sentence: for people; the headline stands after the service's name.
    """

    rate: float | None = None
    concurrency: int | None = None
    refuted: float | None = None
    most_per_s: Interval | None = None
    bottleneck: Cause | None = None
    headline: str
    sentence: str


def capacity_of(
    points: Sequence[AssessedPoint], most_per_s: Interval | None = None
) -> Capacity | None:
    """Say what a service sustains; none without objectives, without points, and of stages.

    Of a rate that was repeated, more than half of the repeats must agree. A point above one that is
    not sustained counts for nothing: it was luck. One that was ended before the service had failed
    at it shows nothing, and neither does one that is not sustained because the client sent requests
    late, or could not send some. Neither does one in which the service ended.

    Args:
        most_per_s: requests/s with all slots busy, where they were measured.
    """
    ordered = sorted(filter(_shows_something, points), key=lambda point: point.pace)
    if not ordered or any(each.metrics.goodput is None or each.stage for each in ordered):
        return None
    rated = [_agreed(list(repeats)) for _, repeats in groupby(ordered, lambda each: each.pace)]
    refuted = next((each for each, verdict in rated if verdict == "not sustained"), None)
    below = [pair for pair in rated if refuted is None or pair[0].pace < refuted.pace]
    sustained = [each for each, verdict in below if verdict == "sustained"]
    best = sustained[-1] if sustained else None
    undecided = next((each for each, _ in below if best is None or each.pace > best.pace), None)
    cause, failure = (None, "") if refuted is None else _why(refuted)
    if best is not None:
        headline = f"sustains {best.label} within the SLO"
    elif undecided is not None:
        headline = f"may or may not sustain {undecided.label} within the SLO"
    else:  # the lowest of all is refuted
        headline = f"does not sustain {rated[0][0].label} within the SLO"
    return Capacity(
        rate=best.rate if best else None,
        concurrency=best.concurrency if best else None,
        refuted=refuted.pace if refuted else None,
        most_per_s=most_per_s,
        bottleneck=cause,
        headline=headline,
        sentence=" ".join(
            [
                *_sustained(best, undecided, refuted, most_per_s),
                *_refuted(refuted, best, cause, failure),
                *_most(most_per_s),
            ]
        ),
    )


def _agreed(repeats: Sequence[AssessedPoint]) -> tuple[AssessedPoint, RateVerdict | None]:
    """Return what most repeats of a rate show, and one of them that shows it."""
    verdict, count = Counter(map(_verdict, repeats)).most_common(1)[0]
    if 2 * count <= len(repeats):
        verdict = "undecided"
    return next((each for each in repeats if _verdict(each) == verdict), repeats[0]), verdict


def _why(point: AssessedPoint) -> tuple[Cause | None, str]:
    failed = point.metrics.failed
    if sum(failed.values()) <= sum(point.slow.values()):
        return point.main_cause, ""
    own = {kind: count for kind, count in failed.items() if kind not in FAILED_BY_THE_CLIENT}
    return None, max(own or failed, key=lambda kind: failed[kind])


def _shows_something(point: AssessedPoint) -> bool:
    metrics = point.metrics
    if any(isinstance(each, ServiceEnded) for each in metrics.findings):
        return False
    is_clients = any(isinstance(each, ClientLate | ClientLimited) for each in metrics.findings)
    if is_clients and _verdict(point) != "sustained":
        return False
    return not metrics.cut_short or not set(metrics.failed) <= FAILED_BY_THE_CLIENT


def _verdict(point: AssessedPoint) -> RateVerdict | None:
    return point.metrics.goodput.verdict if point.metrics.goodput else None


def why_slow(point: AssessedPoint) -> str:
    """Say what made most of a point's slow requests slow; nothing where none was."""
    cause = point.main_cause
    return "" if cause is None else _sentence(_reason(point, cause))


def _sustained(
    best: AssessedPoint | None,
    undecided: AssessedPoint | None,
    refuted: AssessedPoint | None,
    most_per_s: Interval | None,
) -> Iterator[str]:
    if best is not None:
        more = " or more" if undecided is None and refuted is None and not most_per_s else ""
        yield f"Sustains {best.label}{more} within the SLO, with 95% confidence ({_share(best)})."
    if undecided is not None:
        upper = f"{most_per_s.high:.3g} requests/s" if most_per_s else ""
        if refuted is not None:
            upper = refuted.label
        between = f"between {best.label} and {upper}" if best and upper else f"at {undecided.label}"
        yield (
            f"Undecided {between}: {_share(undecided)} at {undecided.pace:g} are within the SLO, "
            "too few independent observations to tell."
        )


def _refuted(
    refuted: AssessedPoint | None, best: AssessedPoint | None, cause: Cause | None, failure: str
) -> Iterator[str]:
    if refuted is None:
        return
    reason = _why_not(refuted, cause, failure)
    if best is not None:
        yield f"At {refuted.label} ({_share(refuted)}), {reason or 'the SLO is not met'}."
        return
    yield f"Does not sustain {refuted.label} within the SLO ({_share(refuted)})."
    if reason:
        yield _sentence(reason)


def _most(most_per_s: Interval | None) -> Iterator[str]:
    if most_per_s is not None:
        yield (
            f"With all slots busy, it answers {most_per_s.low:.3g} to {most_per_s.high:.3g} "
            "requests/s (95% confidence), and no higher rate is stable."
        )


def _why_not(point: AssessedPoint, cause: Cause | None, failure: str) -> str:
    """Say why a point is not sustained.

    Args:
        cause: of most of its slow requests.
        failure: the most frequent kind, where failures outnumber slow requests; else empty.
    """
    metrics, steady = point.metrics, point.metrics.steady
    if failure == "abandoned":
        return f"users give up: {metrics.failed[failure]} of {metrics.requests} requests"
    if failure:
        failed = sum(metrics.failed.values())
        return f"requests fail: {failed} of {metrics.requests}, most often as {failure}"
    if steady is not None and steady.stability == "overloaded" and cause in (None, "unexplained"):
        return (
            f"the backlog grows: {counted(steady.open_at_end, 'request')} had no answer when the "
            "last one was sent"
        )
    return "" if cause is None else _reason(point, cause)


def _share(point: AssessedPoint) -> str:
    found = point.metrics.goodput
    assert found is not None  # noqa: S101 - points without objectives have no capacity
    return f"{found.share:.0%} of {counted(point.metrics.requests, 'request')}"


def _reason(point: AssessedPoint, cause: Cause) -> str:
    board = point.telemetry
    facts = []
    if cause == "queued" and board.slots and board.all_busy_share is not None:
        facts.append(f"{_slots(board.slots)} busy {board.all_busy_share:.0%} of the time")
    if cause == "blocked by a prompt" and board.prompt_share is not None:
        facts.append(f"steps with prompts took {board.prompt_share:.0%} of the server's time")
    if cause == "throttling" and board.throttled_share is not None:
        hottest = f", at up to {board.celsius_max:.0f} °C" if board.celsius_max else ""
        facts.append(
            f"{board.throttled_share:.0%} of the time they ran below their highest "
            f"frequency{hottest}"
        )
    if cause == "paging" and board.storage_share is not None:
        read = f", reading {format_bytes(board.read_bytes)}" if board.read_bytes else ""
        facts.append(f"{board.storage_share:.0%} of the steps' time{read}")
    if cause in ("queued", "shared steps", "own length"):
        facts += _decode_facts(point)
    return f"{_REASONS[cause]}: {', and '.join(facts)}" if facts else _REASONS[cause]


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
