"""Is a service slower under one load than under another: repeats of a point are the samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, median, pvariance, stdev
from typing import Literal

from armload.analysis.comparison import (
    ComparedFigure,
    ComparedLevel,
    Comparison,
    Subject,
    overall_finding,
)
from armload.analysis.comparison_findings import (
    ComparisonFinding,
    DoubtfulLoad,
    FailedRequests,
    NothingInCommon,
    RequestsDiffer,
    SideDifference,
    SideLabel,
    differing,
    differing_settings,
)
from armload.analysis.load.assessed import AssessedPoint
from armload.analysis.load.latency import e2e_s, tpot_s, ttft_s
from armload.analysis.load.records import Load, Stage
from armload.analysis.load.request_columns import EndedRequest
from armload.analysis.load.telemetry import ObservedPoint
from armload.analysis.statistics import (
    COSINES,
    RUN_TO_RUN,
    TAIL,
    Ratio,
    long_run_variance,
    t_quantile,
)
from armload.core.values import counted

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

ComparedPoint = tuple[ObservedPoint, AssessedPoint]


def compare_loads(
    a: Load, a_points: Sequence[ComparedPoint], b: Load, b_points: Sequence[ComparedPoint]
) -> list[Comparison]:
    """Compare the points that two loads have in common, by their pace.

    Loads without a common point give one comparison that says so.
    """
    ones, others = _repeats(a_points), _repeats(b_points)
    shared = [(points, others[pace]) for pace, points in ones.items() if pace in others]
    if not shared:
        return [
            Comparison(
                kind="load",
                a=_subject(a),
                b=_subject(b),
                finding="not comparable",
                figures=(),
                findings=(NothingInCommon(what="load level"),),
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
) -> Comparison:
    both = list(zip(ones, others, strict=False))
    pairs = [_answered_by_both(one, other) for (one, _), (other, _) in both]
    independent = min(each.metrics.independent for _, each in (*ones, *others))
    figures = tuple(
        figure
        for measure in _LATENCIES
        if (figure := _figure(measure, pairs, independent)) is not None
    )
    differences = (
        *differing(
            [
                ("requests", "obstacle", a.requests_from, b.requests_from),
                ("arrivals", "obstacle", a.arrivals, b.arrivals),
                ("seed", "obstacle", a.seed, b.seed),
                ("--max-concurrency", "obstacle", _caps(a), _caps(b)),
            ]
        ),
    )
    found: list[ComparisonFinding] = []
    if not figures:
        found.append(NothingInCommon(what="answered request"))
    if not differences and _plans(a) == _plans(b) and a.requests_sha256 != b.requests_sha256:
        found.append(RequestsDiffer())
    doubts = [
        doubt
        for (_, one), (_, other) in both
        for doubt in (*_doubts("A", one), *_doubts("B", other))
    ]
    verdict = overall_finding(found, differences, figures, is_valid=not doubts)
    reason, advice = "", ""
    if verdict == "inconclusive" and doubts:
        reason = "not all figures are valid"
    elif verdict == "inconclusive":
        reason = (
            "requests that queue together are correlated, and each load is worth about "
            f"{independent:.0f} independent observations"
        )
        advice = f"Run both loads with --repeats {REPEATS}."
    point, requests = ones[0][1], sum(map(len, pairs))
    return Comparison(
        kind="load",
        a=_subject(a),
        b=_subject(b),
        finding=verdict,
        reason=reason,
        figures=figures,
        basis=f"medians of {counted(requests, 'request')}",
        differences=(*differences, *_other_services(a, b)),
        findings=(*found, *doubts),
        level=ComparedLevel(
            label=point.label,
            rate=point.rate,
            concurrency=point.concurrency,
            stage=point.stage,
            requests=requests,
            repeats=len(both),
            independent=independent,
        ),
        advice=advice,
    )


def _subject(load: Load) -> Subject:
    service = {name: value for name, value in (load.service or {}).items() if value is not None}
    return Subject(
        names=(load.id,),
        model=load.model or None,
        board=load.board or None,
        settings={
            "requests_from": load.requests_from,
            "arrivals": load.arrivals,
            "seed": load.seed,
            "dialect": load.dialect,
            **service,
        },
        about=", ".join(filter(None, (load.model, load.board or load.url))),
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


def _figure(
    measure: Measure,
    pairs: Sequence[Sequence[tuple[EndedRequest, EndedRequest]]],
    independent: float,
) -> ComparedFigure | None:
    latency = _LATENCIES[measure]
    answered = [
        [
            (a_s, b_s)
            for one, other in each
            if (a_s := latency(one)) is not None and (b_s := latency(other)) is not None
        ]
        for each in pairs
    ]
    repeats = [each for each in answered if each]
    ratio = ratio_of_repeats(repeats)
    if ratio is None:
        return None
    every = [pair for each in repeats for pair in each]
    is_enough = ratio.unit == "runs" or independent >= FEWEST_INDEPENDENT
    over = f"median over {len(repeats)} repeats" if len(repeats) > 1 else "median"
    return ComparedFigure(
        key=measure,
        heading=measure,
        phrase=f"{measure} ({over})",
        unit="s/token" if measure == "per token" else "s",
        a=median(a_s for a_s, _ in every),
        b=median(b_s for _, b_s in every),
        a_runs=len(repeats),
        b_runs=len(repeats),
        ratio=ratio,
        finding=ratio.finding if is_enough else "inconclusive",
    )


def ratio_of_repeats(repeats: Sequence[Sequence[tuple[float, float]]]) -> Ratio | None:
    """Compare the latencies of two loads.

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
    reach = math.exp(min(t_quantile(1 - TAIL, degrees) * error, _MOST_REACH))
    if unit == "requests":  # one load does not show what varies from run to run
        reach *= 1 + RUN_TO_RUN
    return Ratio(ratio=ratio, low=ratio / reach, high=ratio * reach, unit=unit)


def _positive(seconds: float) -> float:
    return max(seconds, _LEAST_S)


def _caps(load: Load) -> str:
    caps = {point.max_concurrency for point in load.points}
    return ", ".join("none" if each is None else str(each) for each in caps)


def _plans(load: Load) -> list[tuple[float | None, int | None, float | None, int]]:
    return [
        (point.rate, point.concurrency, point.duration_s, point.requests) for point in load.points
    ]


def _other_services(a: Load, b: Load) -> list[SideDifference]:
    return [
        *differing(
            [
                ("models", "setting", a.model, b.model),
                ("boards", "setting", a.board, b.board),
                ("dialects", "setting", a.dialect, b.dialect),
            ]
        ),
        *differing_settings("setting", a.service or {}, b.service or {}),
    ]


def _doubts(side: SideLabel, point: AssessedPoint) -> list[ComparisonFinding]:
    metrics = point.metrics
    found: list[ComparisonFinding] = [
        DoubtfulLoad(side=side, found=each) for each in metrics.findings
    ]
    if failed := sum(metrics.failed.values()):
        found.append(FailedRequests(side=side, failed=failed, requests=metrics.requests))
    return found
