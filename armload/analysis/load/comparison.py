"""Is a service slower under one load than under another: requests are the samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Literal

from armload.analysis.comparison_findings import (
    ComparisonFigures,
    Differs,
    DoubtfulLoad,
    FailedRequests,
    NothingInCommon,
    Remark,
    RequestsDiffer,
    SettingDiffers,
    SideLabel,
)
from armload.analysis.load.assessed import AssessedPoint
from armload.analysis.load.latency import e2e_s, tpot_s, ttft_s
from armload.analysis.load.records import Load, RequestRecord
from armload.analysis.load.telemetry import ObservedPoint
from armload.analysis.statistics import Difference, Ratio, ratio_of_pairs
from armload.analysis.wording import comparisons as wording
from armload.core.values import Value

Measure = Literal["end to end", "first token", "per token"]

_LATENCIES: Mapping[Measure, Callable[[RequestRecord], float | None]] = {
    "end to end": e2e_s,
    "first token": ttft_s,
    "per token": tpot_s,
}


class MeasuredLatency(Value):
    """One latency of both loads, over the requests that both answered.

    Attributes:
        measure: ``end to end`` and ``first token`` from the scheduled time, ``per token`` without
            the first.
        a_s, b_s: medians.
        ratio: B's over A's: above 1, B is slower.
        finding: what the ratio's interval says.
    """

    measure: Measure
    a_s: float
    b_s: float
    ratio: Ratio
    finding: Difference


class LoadComparison(Value):
    """One rate, or number of clients, under two loads.

    Attributes:
        a, b: the loads' ids.
        rate, concurrency: of the point.
        requests: that both answered.
        finding: of the end-to-end latency; ``not comparable`` if anything in ``differences``
            stands against it.
        measured: every latency that both have.
        differences: what differs in the work.
        notes: what else a reader should know.
        doubts: reasons against single points.
    """

    a: str
    b: str
    rate: float | None = None
    concurrency: int | None = None
    requests: int = 0
    finding: Literal["faster", "slower", "no difference", "not comparable"]
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
    others = {_pace(observed): (observed, assessed) for observed, assessed in b_points}
    shared = [(point, others[_pace(point[0])]) for point in a_points if _pace(point[0]) in others]
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


def _pace(observed: ObservedPoint) -> tuple[float | None, int | None]:
    return observed.point.rate, observed.point.concurrency


def _compared(a: Load, one: ComparedPoint, b: Load, other: ComparedPoint) -> LoadComparison:
    pairs = _answered_by_both(one[0], other[0])
    measured = tuple(
        found for measure in _LATENCIES if (found := _measured(measure, pairs)) is not None
    )
    against = _differences(a, b)
    if not measured:
        against.append(NothingInCommon(what="answered request"))
    return LoadComparison(
        a=a.id,
        b=b.id,
        rate=one[0].point.rate,
        concurrency=one[0].point.concurrency,
        requests=len(pairs),
        finding="not comparable" if against else measured[0].finding,
        measured=measured,
        differences=wording.differences(against),
        notes=wording.remarks(_notes(a, b)),
        doubts=wording.remarks([*_doubts("A", one[1]), *_doubts("B", other[1])]),
    )


def _answered_by_both(
    one: ObservedPoint, other: ObservedPoint
) -> list[tuple[RequestRecord, RequestRecord]]:
    answers = {record.number: record for record in other.counted if record.outcome == "ok"}
    return [
        (record, answers[record.number])
        for record in one.counted
        if record.outcome == "ok" and record.number in answers
    ]


def _measured(
    measure: Measure, pairs: Sequence[tuple[RequestRecord, RequestRecord]]
) -> MeasuredLatency | None:
    latency = _LATENCIES[measure]
    both = [
        (a_s, b_s)
        for one, other in pairs
        if (a_s := latency(one)) is not None and (b_s := latency(other)) is not None
    ]
    if not both:
        return None
    a, b = [each for each, _ in both], [each for _, each in both]
    ratio = ratio_of_pairs(a, b)
    return MeasuredLatency(
        measure=measure, a_s=median(a), b_s=median(b), ratio=ratio, finding=ratio.finding
    )


def _differences(a: Load, b: Load) -> list[ComparisonFigures]:
    fields = (
        ("requests", a.requests_from, b.requests_from),
        ("arrivals", a.arrivals, b.arrivals),
        ("seed", a.seed, b.seed),
    )
    found: list[ComparisonFigures] = [
        Differs(name=name, a=one, b=other) for name, one, other in fields if one != other
    ]
    is_same_plan = [_plan(point) for point in a.points] == [_plan(point) for point in b.points]
    if not found and is_same_plan and a.requests_sha256 != b.requests_sha256:
        found.append(RequestsDiffer())
    return found


def _plan(point: object) -> tuple[object, ...]:
    names = ("rate", "concurrency", "duration_s", "requests")
    return tuple(getattr(point, name) for name in names)


def _notes(a: Load, b: Load) -> list[ComparisonFigures]:
    fields = (
        ("models", a.model, b.model),
        ("boards", a.board, b.board),
        ("dialects", a.dialect, b.dialect),
    )
    found: list[ComparisonFigures] = [
        Differs(name=name, a=one, b=other) for name, one, other in fields if one != other
    ]
    one, other = a.service or {}, b.service or {}
    return found + [
        SettingDiffers(name=name.replace("_", " "), a=one.get(name), b=other.get(name))
        for name in sorted({*one, *other})
        if one.get(name) != other.get(name)
    ]


def _doubts(side: SideLabel, point: AssessedPoint) -> list[ComparisonFigures]:
    metrics = point.metrics
    found: list[ComparisonFigures] = [
        DoubtfulLoad(side=side, figures=each.figures) for each in metrics.findings
    ]
    if failed := sum(metrics.failed.values()):
        found.append(FailedRequests(side=side, failed=failed, requests=metrics.requests))
    return found
