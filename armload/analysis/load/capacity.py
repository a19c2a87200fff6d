"""What a service sustains, and what stands in the way of more."""

from __future__ import annotations

from collections.abc import Sequence

from armload.analysis.load.assessed import AssessedPoint, Cause
from armload.analysis.load.metrics import Goodput
from armload.analysis.wording import loads
from armload.core.values import Value

SUSTAINED_FROM = 0.90
"""Share of the requests that must be within all objectives."""

ENDED_BY_THE_CLIENT = frozenset({"cancelled", "unknown"})


class Capacity(Value):
    """What a service sustains.

    Attributes:
        rate: the highest at which nine of ten requests are within the objectives, in requests/s;
            none in a closed loop, and where none is so.
        concurrency: likewise the most clients, in a closed loop.
        bottleneck: what made most of the slow requests slow at the next point above; none where
            there is none.
        sentence: for people, by the wording package.
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
        sentence=loads.sustains_all(top, surely=surely),
    )


def _limited(below: AssessedPoint | None, point: AssessedPoint, *, surely: bool) -> Capacity:
    cause = point.main_cause
    failed = point.metrics.failed
    failure = ""
    if sum(failed.values()) > sum(point.slow.values()):
        own = {kind: count for kind, count in failed.items() if kind not in ENDED_BY_THE_CLIENT}
        failure = max(own or failed, key=lambda kind: failed[kind])
        cause = None
    return Capacity(
        rate=below.rate if below else None,
        concurrency=below.concurrency if below else None,
        bottleneck=cause,
        sentence=loads.limited(below, point, cause, failure, surely=surely),
    )


def _shows_something(point: AssessedPoint) -> bool:
    metrics, goodput = point.metrics, point.metrics.goodput
    if goodput and is_the_clients_fault(goodput):
        return False
    return not metrics.cut_short or not set(metrics.failed) <= ENDED_BY_THE_CLIENT


def is_sustained(found: Goodput, *, surely: bool) -> bool:
    """Return whether enough requests were within the objectives, or, for sure, that they are."""
    if surely:
        return found.interval is not None and found.interval.low >= SUSTAINED_FROM
    return found.share >= SUSTAINED_FROM


def is_the_clients_fault(found: Goodput) -> bool:
    """Return whether a rate would be sustained if all requests had been sent on time."""
    return found.share < SUSTAINED_FROM <= found.share_if_on_time


def _goodput(point: AssessedPoint) -> Goodput:
    found = point.metrics.goodput
    assert found is not None  # noqa: S101 - points without objectives are sorted out before
    return found
