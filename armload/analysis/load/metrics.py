"""From the requests of a load at one rate, or concurrency, to its figures.

Each is defined in docs/load-metrics.md.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

from armload.analysis.load import latency
from armload.analysis.load.findings import (
    AnswersCutOff,
    Cancelled,
    ClientLate,
    ClientLimited,
    Incomplete,
    LinesIgnored,
    LoadFigures,
    LoadFinding,
    NoneSucceeded,
    ServiceEnded,
    TokensUncounted,
)
from armload.analysis.load.quantiles import Distribution, distribution, share_interval
from armload.analysis.load.records import LoadPoint, Objectives, RateVerdict, RequestRecord
from armload.analysis.load.steady import SteadyState, judged, steady_state
from armload.analysis.statistics import Interval
from armload.analysis.wording.loads import doubt
from armload.core.values import Value

MOST_LATENESS_S = 0.010
"""What a client may be late for 99% of its requests without a doubt about the figures..."""

MOST_LATENESS_SHARE = 0.05
"""...or as a share of the median time from sending to the first token, where that is more."""


class Latencies(Value):
    """The latencies that depend on when a request is taken to begin."""

    e2e: Distribution | None
    ttft: Distribution | None


class Goodput(Value):
    """Requests within all objectives.

    Attributes:
        objectives: what each must stay within.
        good: requests that did.
        share: of all after the warm-up, failures and those without a record included.
        interval: of the share, with 95% confidence; none of too few requests.
        requests_per_s: of the good ones.
        verdict: whether at least nine of ten requests are, of all that will come.
    """

    objectives: Objectives
    good: int
    share: float
    interval: Interval | None
    requests_per_s: float
    verdict: RateVerdict


class Metrics(Value):
    """The figures of one point of a load; warm-up requests are excluded from all but the counts.

    Attributes:
        scheduled: requests, with warm-up.
        warmup: requests that are excluded.
        requests: that are not, and ended in some way.
        ok: of those, the successful ones; times and tokens are theirs.
        failed: how many of the others ended in which way; ``unknown`` where the client itself was
            killed.
        cut_off: how many successful answers are shorter than asked for, and were not ended by the
            model.
        duration_s: from the first request's scheduled time to the last end.
        total_s: from the first request's begin to the last end, warm-up included: the total time
            of the llm-serving test client.
        offered_per_s: requests/s as scheduled; none in a closed loop.
        requests_per_s, output_tokens_per_s: successful requests, and tokens that they generated,
            in each second of the duration.
        prompt_tokens, output_tokens: sums, by the server's count; none where it gives none.
        from_scheduled: what a user has waited.
        from_sent: what the server and the network took.
        tpot: time per output token, without the first.
        itl: inter-token latency, of all tokens together.
        queue: waiting for a slot.
        lateness: of the client.
        held: how long requests waited for ``max_concurrency``; without those that did not.
        goodput: under the objectives, where there are any.
        steady: whether an open loop reached a steady state; none in a closed loop.
        independent: observations that the requests are worth, since those that queue together
            are alike.
        cut_short: the load was ended before all requests had an answer or a failure of their own.
        valid: whether the figures describe the service.
        findings: why not.
    """

    scheduled: int
    warmup: int
    requests: int
    ok: int
    failed: dict[str, int]
    cut_off: int = 0
    duration_s: float
    total_s: float
    offered_per_s: float | None
    requests_per_s: float
    output_tokens_per_s: float | None
    prompt_tokens: int | None
    output_tokens: int | None
    from_scheduled: Latencies
    from_sent: Latencies
    tpot: Distribution | None
    itl: Distribution | None
    queue: Distribution | None
    lateness: Distribution | None
    held: Distribution | None = None
    goodput: Goodput | None = None
    steady: SteadyState | None = None
    independent: float = 0.0
    cut_short: bool = False
    valid: bool
    findings: tuple[LoadFinding, ...] = ()


def metrics_of(
    point: LoadPoint,
    records: Sequence[RequestRecord],
    objectives: Objectives | None = None,
    *,
    slots: int | None = None,
    context_tokens: int | None = None,
    percentiles: Sequence[float] = (),
) -> Metrics:
    """Compute the figures of a point.

    Args:
        records: of its requests, in the order of their schedule.
        slots, context_tokens: of the server, and of each slot; none where they are not known.
        percentiles: besides the usual ones.
    """
    measured = [record for record in records if not record.is_warmup]
    ok = [record for record in measured if record.outcome == "ok"]
    failed = Counter(record.failure for record in measured if record.outcome != "ok")
    unknown = max(0, point.requests - len(records))
    duration_s = _span(measured, lambda record: record.scheduled_s)
    if slots is not None and point.max_concurrency is not None:
        slots = min(slots, point.max_concurrency)  # more are never busy
    steady = steady_state(point, measured, slots)
    independent = _independent(point, measured, steady)

    def summary(
        records: Sequence[RequestRecord], figure: Callable[[RequestRecord], float | None]
    ) -> Distribution | None:
        known = [each for each in map(figure, records) if each is not None]
        return distribution(known, independent, percentiles)

    lateness = summary(measured, latency.lateness_s)
    ttft = summary(ok, latency.ttft_s)
    ttft_from_sent = summary(ok, lambda record: _since_sent(record, latency.first_token_s(record)))
    cancelled = sum(record.outcome == "cancelled" for record in records)
    cut_short = point.is_under_way or unknown > 0 or cancelled > 0
    doubts = _about_lateness(lateness, ttft_from_sent)
    if limited := failed["client-limit"]:
        doubts.append(ClientLimited(limited=limited, requests=len(measured)))
    if point.service_ended:
        doubts.append(ServiceEnded(reason=point.service_ended))
    if cut_short:
        doubts.append(
            Cancelled(cancelled=cancelled, requests=point.requests)
            if cancelled
            else Incomplete(recorded=len(records), requests=point.requests)
        )
    cut_off = [record for record in ok if record.is_cut_off]
    if cut_off:
        filled = sum(_filled(record, context_tokens) for record in cut_off)
        doubts.append(AnswersCutOff(cut_off=len(cut_off), filled=filled, answers=len(ok)))
    if ignored := [record.ignored_lines for record in ok if record.ignored_lines]:
        doubts.append(LinesIgnored(lines=sum(ignored), answers=len(ignored)))
    uncounted = sum(record.generated_tokens is None for record in ok)
    if objectives is not None and objectives.tpot_s is not None and uncounted:
        doubts.append(TokensUncounted(uncounted=uncounted, answers=len(ok)))
    output = _sum(ok, lambda record: record.generated_tokens)
    return Metrics(
        scheduled=point.requests,
        warmup=len(records) - len(measured),
        requests=len(measured),
        ok=len(ok),
        failed={**failed, **({"unknown": unknown} if unknown else {})},
        cut_off=len(cut_off),
        duration_s=duration_s,
        total_s=_span(records, lambda record: record.begun_s),
        offered_per_s=_offered(point, measured),
        requests_per_s=_per_s(len(ok), duration_s),
        output_tokens_per_s=None if output is None else _per_s(output, duration_s),
        prompt_tokens=_sum(ok, lambda record: record.prompt_tokens),
        output_tokens=output,
        from_scheduled=Latencies(e2e=summary(ok, latency.e2e_s), ttft=ttft),
        from_sent=Latencies(
            e2e=summary(ok, lambda record: _since_sent(record, record.end_s)),
            ttft=ttft_from_sent,
        ),
        tpot=summary(ok, latency.tpot_s),
        itl=distribution(
            [gap for record in ok for gap in latency.gaps_s(record)], independent, percentiles
        ),
        queue=summary(ok, latency.queue_s),
        lateness=lateness,
        held=summary(measured, lambda record: record.held_s or None),
        goodput=None
        if objectives is None
        else _goodput(
            measured,
            unknown,
            objectives,
            duration_s,
            independent,
            point.verdict,
            steady,
        ),
        steady=steady,
        independent=independent,
        cut_short=cut_short,
        valid=not doubts,
        findings=tuple(LoadFinding(figures=each, sentence=doubt(each)) for each in doubts),
    )


def _filled(record: RequestRecord, context_tokens: int | None) -> bool:
    tokens = (record.prompt_tokens or 0) + (record.generated_tokens or 0)
    return record.is_truncated or (context_tokens is not None and tokens >= context_tokens - 1)


def _about_lateness(lateness: Distribution | None, ttft: Distribution | None) -> list[LoadFigures]:
    if ttft is None:
        return [NoneSucceeded()]
    allowed_s = _most_lateness_s(ttft)
    if lateness is None or lateness.p99.value_s <= allowed_s:
        return []
    return [ClientLate(late_s=lateness.p99.value_s, allowed_s=allowed_s)]


def _most_lateness_s(ttft: Distribution | None) -> float:
    typical_s = 0.0 if ttft is None else ttft.p50.value_s
    return max(MOST_LATENESS_S, MOST_LATENESS_SHARE * typical_s)


def _goodput(
    measured: Sequence[RequestRecord],
    unknown: int,
    objectives: Objectives,
    duration_s: float,
    independent: float,
    searched: RateVerdict | None,
    steady: SteadyState | None,
) -> Goodput:
    severities = [latency.severity(record, objectives) for record in measured]
    severities += [math.inf] * unknown
    are_good = [each <= 1 for each in severities]
    good = sum(are_good)
    return Goodput(
        objectives=objectives,
        good=good,
        share=good / len(are_good) if are_good else 0.0,
        interval=share_interval(are_good, independent),
        requests_per_s=_per_s(good, duration_s),
        verdict=searched
        or (
            judged(severities, independent, steady.stability if steady else None)
            if severities
            else "undecided"
        ),
    )


def _independent(
    point: LoadPoint, measured: Sequence[RequestRecord], steady: SteadyState | None
) -> float:
    if steady is not None:
        return min(steady.independent, float(len(measured)))
    # Those that are in a service at the same time slow each other down.
    return len(measured) / point.concurrency if point.concurrency else 0.0


def _offered(point: LoadPoint, measured: Sequence[RequestRecord]) -> float | None:
    if point.concurrency is not None or len(measured) < 2:
        return None
    span_s = measured[-1].scheduled_s - measured[0].scheduled_s
    return (len(measured) - 1) / span_s if span_s > 0 else None


def _since_sent(record: RequestRecord, time_s: float) -> float | None:
    return None if record.sent_s is None else time_s - record.sent_s


def _span(
    records: Sequence[RequestRecord], begin: Callable[[RequestRecord], float | None]
) -> float:
    begins = [each for each in map(begin, records) if each is not None]
    return max(record.end_s for record in records) - min(begins) if begins else 0.0


def _per_s(count: float, duration_s: float) -> float:
    return count / duration_s if duration_s > 0 else 0.0


def _sum(
    records: Sequence[RequestRecord], count: Callable[[RequestRecord], int | None]
) -> int | None:
    counts = [count(record) for record in records]
    known = [each for each in counts if each is not None]
    return sum(known) if known and len(known) == len(counts) else None
