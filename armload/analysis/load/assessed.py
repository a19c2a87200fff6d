"""One point of a load with everything its records say, and why slow requests were slow."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from armload.analysis.energy import MeteredTime, metered, per
from armload.analysis.limit import find_limit
from armload.analysis.limit_findings import Limit
from armload.analysis.load.latency import e2e_s, missed_objective
from armload.analysis.load.metrics import Metrics, metrics_of
from armload.analysis.load.parts import Accounting, Parts
from armload.analysis.load.records import Objectives, Stage
from armload.analysis.load.request_columns import EndedRequest
from armload.analysis.load.server_metrics import ServerMetric, server_metrics
from armload.analysis.load.telemetry import ObservedPoint, Telemetry, telemetry_of
from armload.core.values import Finite, Value, counted
from armload.engines.job import Job

Cause = Literal[
    "client late",
    "held back",
    "queued",
    "blocked by a prompt",
    "shared steps",
    "paging",
    "throttling",
    "own length",
    "unexplained",
]
"""What made a request slow.

``client late``: it was sent after its time; ``held back``: the client had as many requests in
flight as it may have; ``queued``: all slots were taken; ``blocked by a prompt``: its steps
processed prompts of other requests; ``shared steps``: its steps generated tokens of other
requests, and took longer for it; ``paging``: the server waited for storage; ``throttling``: the
cores ran at a lower frequency; ``own length``: by its own prompt and tokens alone it is as slow.
"""

CAUSES: tuple[Cause, ...] = get_args(Cause)

SLOW_FROM = 2.0
"""Without objectives, a request is slow that took so many times as long as its own part..."""

SLOW_BY_S = 0.1
"""...and so much longer, or a server that answers within milliseconds would be called slow."""

MOST_SLOW = 200
"""That are shown one by one."""

EXPLAINS = 0.25
"""Share of its own part, and of what it took beyond that, which a cause must have taken."""

_BY_PART: Mapping[str, Cause] = {
    "late_s": "client late",
    "held_s": "held back",
    "queued_s": "queued",
    "blocked_s": "blocked by a prompt",
    "sharing_s": "shared steps",
    "paging_s": "paging",
    "throttling_s": "throttling",
}


@dataclass(frozen=True, kw_only=True)
class SlowRequest:
    """One slow request.

    Attributes:
        cause: of its slowness.
        parts: where the time went in which it was slow: until the first token, after it, or all.
    """

    request: EndedRequest
    cause: Cause
    parts: Parts


@dataclass(frozen=True, kw_only=True)
class SlowRequests:
    """The slow ones of a point.

    Attributes:
        causes: of all.
        slowest: those that took longest, the slowest first.
    """

    causes: Counter[Cause]
    slowest: tuple[SlowRequest, ...]


def slow_requests(accounting: Accounting, objectives: Objectives | None) -> SlowRequests:
    """Return the slow ones among a point's answered requests.

    Args:
        accounting: of the point.
        objectives: that the slow ones missed; none for those that took much longer than their
            own prompt and tokens take.
    """
    causes: Counter[Cause] = Counter()

    def found() -> Iterator[SlowRequest]:
        for each in _slow(accounting, objectives):
            causes[each.cause] += 1
            yield each

    slowest = heapq.nlargest(MOST_SLOW, found(), key=lambda each: e2e_s(each.request))
    return SlowRequests(causes=causes, slowest=tuple(slowest))


def _slow(accounting: Accounting, objectives: Objectives | None) -> Iterator[SlowRequest]:
    for record, account in accounting.answered():
        if objectives is None:
            parts = account.whole
            beyond_s = parts.total_s - parts.own_s
            is_slow = beyond_s >= max(SLOW_BY_S, (SLOW_FROM - 1) * parts.own_s)
        else:
            missed = missed_objective(record, objectives)
            if missed == "ttft":
                parts = account.first
            else:
                parts = account.rest if missed == "tpot" else account.whole
            is_slow = missed is not None
        if not is_slow:
            continue
        cause = _cause(parts, reads_steadily=accounting.reads_steadily)
        yield SlowRequest(request=record, cause=cause, parts=parts)


def _cause(parts: Parts, *, reads_steadily: bool) -> Cause:
    excess_s = parts.total_s - parts.own_s
    largest = max(_BY_PART, key=lambda name: getattr(parts, name))
    if getattr(parts, largest) >= EXPLAINS * max(excess_s, parts.own_s):
        return _BY_PART[largest]
    if parts.own_s >= excess_s:
        return "paging" if reads_steadily else "own length"
    return "unexplained"


class PointEnergy(MeteredTime):
    """What the meter showed from the first request's scheduled time to the end of the last.

    A stage's time ends where the next one begins, so that no energy counts twice.

    Attributes:
        joules_per_request, joules_per_token: over the requests that succeeded, and the tokens
            that they generated; the others' energy is part of it.
    """

    joules_per_request: Finite | None = None
    joules_per_token: Finite | None = None


class AssessedPoint(Value):
    """One point of a load.

    Attributes:
        rate: requests/s, or conversations/s, on average, in an open loop.
        concurrency: clients, in a closed loop.
        metrics: its figures.
        telemetry: what the board did.
        energy: what it took; none without a power meter.
        slow: how many answered requests were slow, by cause.
        limit: what limited the server's decode steps; none where the server's trace, or what it
            runs on, is unknown.
        stage: of a load whose rate varies; none of a rate that is constant.
        server: the server's own metrics; empty where it gives none.
    """

    rate: float | None
    concurrency: int | None
    stage: Stage | None = None
    metrics: Metrics
    telemetry: Telemetry
    energy: PointEnergy | None = None
    slow: dict[Cause, int]
    limit: Limit | None = None
    server: tuple[ServerMetric, ...] = ()

    @property
    def pace(self) -> float:
        """The rate in requests/s, or the number of clients; of a stage, when it starts."""
        if self.stage is not None:
            return self.stage.start_s
        return self.rate or self.concurrency or 0

    @property
    def main_cause(self) -> Cause | None:
        """What made most of the slow requests slow; none where none was."""
        found = [cause for cause in CAUSES if self.slow.get(cause)]
        return max(found, key=lambda cause: self.slow[cause], default=None)

    @property
    def joules(self) -> tuple[float | None, float | None]:
        """Of a successful request, and of an output token, as far as they are known."""
        if self.energy is None:
            return None, None
        return self.energy.joules_per_request, self.energy.joules_per_token

    @property
    def label(self) -> str:
        if self.stage is not None:
            return f"{self.stage.rates} requests/s ({self.stage.span})"
        if self.rate is not None:
            unit = "request" if self.metrics.conversations is None else "conversation"
            return f"{self.rate:g} {unit}{'' if self.rate == 1 else 's'}/s"
        return counted(self.concurrency or 0, "client")


def assess(
    observed: ObservedPoint,
    slow: Mapping[Cause, int],
    objectives: Objectives | None,
    job: Job | None = None,
    percentiles: Sequence[float] = (),
) -> AssessedPoint:
    """Compute everything that a point's records say.

    Args:
        slow: how many of its answered requests were, by cause.
        job: the server's, as it was started; none for a service that armload does not run.
        percentiles: besides the usual ones.
    """
    metrics = metrics_of(
        observed.point,
        observed.records,
        objectives,
        slots=observed.slots,
        context_tokens=observed.context_tokens,
        percentiles=percentiles,
    )
    steps = observed.steps_within(*observed.window_s)
    if job is None or observed.header is None or not steps:
        limit = None
    else:
        found = find_limit(
            steps,
            observed.header,
            model=job.model,
            board=job.board,
            before=job.before,
            cpus=cpus_of(job),
        )
        limit = Limit.of(found)
    return AssessedPoint(
        rate=observed.point.rate,
        concurrency=observed.point.concurrency,
        stage=observed.point.stage,
        metrics=metrics,
        telemetry=telemetry_of(observed),
        energy=energy_of(observed, metrics),
        slow=dict(slow),
        limit=limit,
        server=server_metrics(observed.server),
    )


def cpus_of(job: Job) -> str | None:
    """Return the cores that a server was kept to; none for all."""
    settings: dict[str, Any] = job.arguments or {}
    cpus = settings.get("cpus")
    return cpus if isinstance(cpus, str) else None


def energy_of(observed: ObservedPoint, metrics: Metrics) -> PointEnergy | None:
    """Return a point's energy, without its warm-up; none where there was no meter.

    Args:
        metrics: of the point.
    """
    if not observed.power or not observed.counted:
        return None
    zero_s, next_s = observed.point.began_client_s, observed.next_stage_s
    samples = [
        (line.here_s - zero_s, line.reading.watts)
        for line in observed.power
        if line.reading is not None and not line.is_idle
    ]
    found = metered(
        *(observed.power, samples),
        min(record.scheduled_s for record in observed.counted),
        max(record.end_s for record in observed.counted) if next_s is None else next_s,
        subtracts_idle=observed.subtracts_idle,
    )
    return PointEnergy(
        **dict(found),
        joules_per_request=per(found.joules, metrics.ok),
        joules_per_token=per(found.joules, metrics.output_tokens),
    )
