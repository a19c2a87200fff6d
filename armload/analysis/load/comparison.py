"""Is a service slower under one load than under another: repeats of a point are the samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, median, pvariance, stdev
from typing import Literal

from armload.analysis.comparison_findings import (
    ComparisonFigures,
    ComparisonFinding,
    DoubtfulLoad,
    FailedRequests,
    NothingInCommon,
    Remark,
    RequestsDiffer,
    SideLabel,
    differing_facts,
    differing_settings,
    overall_finding,
)
from armload.analysis.load.assessed import AssessedPoint
from armload.analysis.load.latency import e2e_s, tpot_s, ttft_s
from armload.analysis.load.records import Load, LoadPoint, Stage
from armload.analysis.load.request_columns import EndedRequest
from armload.analysis.load.telemetry import ObservedPoint
from armload.analysis.statistics import (
    COSINES,
    RUN_TO_RUN,
    TAIL,
    Ratio,
    RatioFinding,
    long_run_variance,
    t_quantile,
)
from armload.analysis.wording import comparisons as wording
from armload.core.values import Value

Measure = Literal["end to end", "first token", "per token"]

_LATENCIES: Mapping[Measure, Callable[[EndedRequest], float | None]] = {
    "end to end": e2e_s,
    "first token": ttft_s,
    "per token": tpot_s,
}


_LEAST_S = 1e-6
_MOST_REACH = 50.0

FEWEST_REPEATS = 4
"""Of each load; the spread of fewer cannot be estimated."""

REPEATS = 5
"""That a person is asked for."""

FEWEST_INDEPENDENT = 40.0
"""Observations of one load each; of fewer, its own requests do not show how sure it is."""

LatencyFinding = Literal[RatioFinding, "inconclusive"]


class MeasuredLatency(Value):
    """One latency of both loads, over the requests that both answered.

    Attributes:
        measure: ``end to end`` and ``first token`` from the scheduled time, ``per token`` without
            the first.
        a_s, b_s: medians.
        ratio: B's over A's: above 1, B is slower.
        error: standard error of the ratio's logarithm, with so many ``degrees`` of freedom.
        finding: what the ratio's interval says; ``inconclusive``: it is too short for one.
    """

    measure: Measure
    a_s: float
    b_s: float
    ratio: Ratio
    error: float
    degrees: int
    finding: LatencyFinding

    def low_at(self, level: float) -> float:
        """Return what the ratio is below with a probability."""
        if self.finding == "inconclusive":
            return 0.0
        return _bounds(self.ratio.ratio, self.error, self.degrees, level, self.ratio.unit)[0]


class LoadComparison(Value):
    """One rate, or number of clients, under two loads.

    Attributes:
        a, b: the loads' ids.
        label: of the point; empty where the loads have none in common.
        rate, concurrency, stage: of the point.
        requests: that both answered.
        repeats: of the point, on the side that has fewer.
        independent: observations that one repeat is worth, on the side that has fewer.
        finding: of the end-to-end latency; ``not comparable`` if anything in ``differences``
            stands against it; ``inconclusive`` if a point is not valid, or the loads are too
            short to say.
        measured: every latency that both have.
        differences: what differs in the work.
        notes: what else a reader should know.
        doubts: reasons against single points.
    """

    a: str
    b: str
    label: str = ""
    rate: float | None = None
    concurrency: int | None = None
    stage: Stage | None = None
    requests: int = 0
    repeats: int = 1
    independent: float = 0.0
    finding: ComparisonFinding
    measured: tuple[MeasuredLatency, ...] = ()
    differences: tuple[Remark, ...] = ()
    notes: tuple[Remark, ...] = ()
    doubts: tuple[Remark, ...] = ()


ComparedPoint = tuple[ObservedPoint, AssessedPoint]


def compare_loads(
    a: Load, a_points: Sequence[ComparedPoint], b: Load, b_points: Sequence[ComparedPoint]
) -> list[LoadComparison]:
    """Compare the points that two loads have in common, by their pace.

    Loads without a common point give one comparison that says so.
    """
    ones, others = _repeats(a_points), _repeats(b_points)
    shared = [(points, others[pace]) for pace, points in ones.items() if pace in others]
    if not shared:
        return [
            LoadComparison(
                a=a.id,
                b=b.id,
                finding="not comparable",
                differences=wording.differences([NothingInCommon(what="load level")]),
            )
        ]
    return [_compared(a, one, b, other) for one, other in shared]


_Pace = tuple[float | None, int | None, Stage | None]


def _pace(observed: ObservedPoint) -> _Pace:
    return observed.point.rate, observed.point.concurrency, observed.point.stage


def _repeats(points: Sequence[ComparedPoint]) -> dict[_Pace, list[ComparedPoint]]:
    found: dict[_Pace, list[ComparedPoint]] = {}
    for point in points:
        found.setdefault(_pace(point[0]), []).append(point)
    return found


def _compared(
    a: Load, ones: Sequence[ComparedPoint], b: Load, others: Sequence[ComparedPoint]
) -> LoadComparison:
    both = list(zip(ones, others, strict=False))
    pairs = [_answered_by_both(one, other) for (one, _), (other, _) in both]
    independent = min(each.metrics.independent for _, each in (*ones, *others))
    measured = tuple(
        found
        for measure in _LATENCIES
        if (found := _measured(measure, pairs, independent)) is not None
    )
    against = _differences(a, b)
    if not measured:
        against.append(NothingInCommon(what="answered request"))
    doubts = [
        doubt
        for (_, one), (_, other) in both
        for doubt in (*_doubts("A", one), *_doubts("B", other))
    ]
    point = ones[0][1]
    return LoadComparison(
        a=a.id,
        b=b.id,
        label=point.label,
        rate=point.rate,
        concurrency=point.concurrency,
        stage=point.stage,
        requests=sum(map(len, pairs)),
        repeats=len(both),
        independent=independent,
        finding=overall_finding(against, [each.finding for each in measured], is_valid=not doubts),
        measured=measured,
        differences=wording.differences(against),
        notes=wording.remarks(_notes(a, b)),
        doubts=wording.remarks(doubts),
    )


def _answered_by_both(
    one: ObservedPoint, other: ObservedPoint
) -> list[tuple[EndedRequest, EndedRequest]]:
    answers = {record.number: record for record in other.counted if record.outcome == "ok"}
    return [
        (record, answers[record.number])
        for record in one.counted
        if record.outcome == "ok" and record.number in answers
    ]


def _measured(
    measure: Measure,
    pairs: Sequence[Sequence[tuple[EndedRequest, EndedRequest]]],
    independent: float,
) -> MeasuredLatency | None:
    latency = _LATENCIES[measure]
    repeats = [
        [
            (a_s, b_s)
            for one, other in each
            if (a_s := latency(one)) is not None and (b_s := latency(other)) is not None
        ]
        for each in pairs
    ]
    found = ratio_of_repeats([each for each in repeats if each])
    if found is None:
        return None
    ratio, error, degrees = found
    every = [pair for each in repeats for pair in each]
    is_enough = ratio.unit == "runs" or independent >= FEWEST_INDEPENDENT
    return MeasuredLatency(
        measure=measure,
        a_s=median(a_s for a_s, _ in every),
        b_s=median(b_s for _, b_s in every),
        ratio=ratio,
        error=error,
        degrees=degrees,
        finding=ratio.finding if is_enough else "inconclusive",
    )


def ratio_of_repeats(
    repeats: Sequence[Sequence[tuple[float, float]]],
) -> tuple[Ratio, float, int] | None:
    """Compare the latencies of two loads, with the standard error of the ratio's logarithm.

    The requests of a load depend on each other, but its repeats do not. The same schedule on both
    sides makes a repeat a pair, and most of what differs from schedule to schedule cancels out.
    With fewer than four repeats, the pairs of requests stand in for them, with their long-run
    variance.

    Args:
        repeats: of each, A's and B's latency of the requests that both answered.
    """
    every = [pair for each in repeats for pair in each]
    if not every:
        return None
    if len(repeats) >= FEWEST_REPEATS:
        logs = [
            math.log(_positive(median(b for _, b in each)) / _positive(median(a for a, _ in each)))
            for each in repeats
        ]
        error, degrees = stdev(logs) / math.sqrt(len(logs)), len(logs) - 1
        unit: Literal["runs", "requests"] = "runs"
    else:
        logs = [math.log(_positive(b_s) / _positive(a_s)) for a_s, b_s in every]
        spread = max(long_run_variance(logs), pvariance(logs))
        error, degrees = math.sqrt(spread / len(logs)), COSINES
        unit = "requests"
    ratio = math.exp(fmean(logs))
    low, high = _bounds(ratio, error, degrees, TAIL, unit)
    return Ratio(ratio=ratio, low=low, high=high, unit=unit), error, degrees


def _bounds(
    ratio: float, error: float, degrees: int, level: float, unit: str
) -> tuple[float, float]:
    reach = math.exp(min(t_quantile(1 - level, degrees) * error, _MOST_REACH))
    # One load does not show what varies from run to run.
    allowance = 1 + RUN_TO_RUN if unit == "requests" else 1.0
    return ratio / reach / allowance, ratio * reach * allowance


def _positive(seconds: float) -> float:
    return max(seconds, _LEAST_S)


def _differences(a: Load, b: Load) -> list[ComparisonFigures]:
    found = differing_facts(
        [
            ("requests", a.requests_from, b.requests_from),
            ("arrivals", a.arrivals, b.arrivals),
            ("seed", a.seed, b.seed),
            ("--max-concurrency", _caps(a), _caps(b)),
        ]
    )
    is_same_plan = list(map(_plan, a.points)) == list(map(_plan, b.points))
    if not found and is_same_plan and a.requests_sha256 != b.requests_sha256:
        return [RequestsDiffer()]
    return [*found]


def _caps(load: Load) -> str:
    caps = {point.max_concurrency for point in load.points}
    return ", ".join("none" if each is None else str(each) for each in caps)


def _plan(point: LoadPoint) -> tuple[float | None, int | None, float | None, int]:
    return point.rate, point.concurrency, point.duration_s, point.requests


def _notes(a: Load, b: Load) -> list[ComparisonFigures]:
    return [
        *differing_facts(
            [
                ("models", a.model, b.model),
                ("boards", a.board, b.board),
                ("dialects", a.dialect, b.dialect),
            ]
        ),
        *differing_settings(a.service or {}, b.service or {}),
    ]


def _doubts(side: SideLabel, point: AssessedPoint) -> list[ComparisonFigures]:
    metrics = point.metrics
    found: list[ComparisonFigures] = [
        DoubtfulLoad(side=side, figures=each) for each in metrics.findings
    ]
    if failed := sum(metrics.failed.values()):
        found.append(FailedRequests(side=side, failed=failed, requests=metrics.requests))
    return found
