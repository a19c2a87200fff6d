"""One point of a load with everything that its records say."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from armload.analysis.limit import find_limit
from armload.analysis.load.causes import Cause, SlowRequest, tally
from armload.analysis.load.metrics import Metrics, metrics_of
from armload.analysis.load.objectives import Objectives
from armload.analysis.load.telemetry import ObservedPoint, Telemetry, telemetry_of
from armload.analysis.run import Limit
from armload.core.values import Value, counted
from armload.engines.job import Job


class AssessedPoint(Value):
    """One point of a load.

    Attributes:
        rate: requests/s on average, in an open loop.
        concurrency: clients, in a closed loop.
        metrics: its figures.
        telemetry: what the board did.
        slow: how many answered requests were slow, by cause.
        limit: what limited the server's decode steps; none where the server's trace, or what it
            runs on, is unknown.
    """

    rate: float | None
    concurrency: int | None
    metrics: Metrics
    telemetry: Telemetry
    slow: dict[Cause, int]
    limit: Limit | None = None

    @property
    def pace(self) -> float:
        """The rate in requests/s, or the number of clients."""
        return self.rate or self.concurrency or 0

    @property
    def label(self) -> str:
        """The pace with its unit."""
        if self.rate is not None:
            return f"{self.rate:g} request{'' if self.rate == 1 else 's'}/s"
        return counted(self.concurrency or 0, "client")


def assess(
    observed: ObservedPoint,
    slow: Iterable[SlowRequest],
    objectives: Objectives | None,
    job: Job | None = None,
) -> AssessedPoint:
    """Compute everything that a point's records say.

    Args:
        slow: its slow requests.
        job: the server's, as it was started; none for a service that armload does not run.
    """
    return AssessedPoint(
        rate=observed.point.rate,
        concurrency=observed.point.concurrency,
        metrics=metrics_of(observed.point, observed.records, objectives),
        telemetry=telemetry_of(observed),
        slow=dict(tally(slow)),
        limit=_limit(observed, job),
    )


def _limit(observed: ObservedPoint, job: Job | None) -> Limit | None:
    steps = observed.steps_within(*observed.window_s)
    if job is None or observed.header is None or not steps:
        return None
    return find_limit(
        steps,
        observed.header,
        model=job.model,
        board=job.board,
        before=job.before,
        cpus=cpus_of(job),
    )


def cpus_of(job: Job) -> str | None:
    """Return the cores that a server was kept to; none for all."""
    settings: dict[str, Any] = job.arguments or {}
    cpus = settings.get("cpus")
    return cpus if isinstance(cpus, str) else None
