"""What a service sustains, and what stands in the way of more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby

from armload.analysis.load.assessed import AssessedPoint, Cause
from armload.analysis.load.findings import ClientLate, ClientLimited, ServiceEnded
from armload.analysis.load.records import RateVerdict
from armload.analysis.statistics import Interval
from armload.analysis.wording import loads
from armload.core.values import Value

FAILED_BY_THE_CLIENT = frozenset({"cancelled", "unknown", "client-limit"})


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
        headline, sentence: for people, by the wording package.
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
    return Capacity(
        rate=best.rate if best else None,
        concurrency=best.concurrency if best else None,
        refuted=refuted.pace if refuted else None,
        most_per_s=most_per_s,
        bottleneck=cause,
        headline=loads.capacity_headline(best, undecided, refuted),
        sentence=loads.capacity(best, undecided, refuted, cause, failure, most_per_s),
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
    if any(isinstance(each.figures, ServiceEnded) for each in metrics.findings):
        return False
    is_clients = any(
        isinstance(each.figures, ClientLate | ClientLimited) for each in metrics.findings
    )
    if is_clients and _verdict(point) != "sustained":
        return False
    return not metrics.cut_short or not set(metrics.failed) <= FAILED_BY_THE_CLIENT


def _verdict(point: AssessedPoint) -> RateVerdict | None:
    return point.metrics.goodput.verdict if point.metrics.goodput else None
