"""From the requests of a load at one rate, or concurrency, to its figures.

Each is defined in docs/load-metrics.md.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Callable, Sequence

from armload.analysis.load import latency
from armload.analysis.load.findings import (
    AnyLoadFinding,
    Cancelled,
    Incomplete,
    LoadFinding,
    about_answers,
    about_client,
    about_requests,
)
from armload.analysis.load.quantiles import Distribution, QueueWaits, distribution, share_interval
from armload.analysis.load.records import LoadPoint, Objectives, RateVerdict, Refusal
from armload.analysis.load.request_columns import EndedRequest, failure
from armload.analysis.load.steady import SteadyState, judged, steady_state, waits_in
from armload.analysis.load.users import (
    Abandoned,
    Conversations,
    PromptReuse,
    abandoned_of,
    conversations_of,
    in_steady_state,
    prompt_reuse,
)
from armload.analysis.statistics import Interval
from armload.core.values import Value

_MORE_TOKENS_THAN_CHUNKS = 1.2
"""Some tokens have no text of their own: the first ones of a character, or special ones."""


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
        refusal: the most frequent one of the service; none where it refused nothing.
        cut_off: how many successful answers are shorter than asked for, and were not ended by the
            model.
        at_once: how many successful answers have no time per token, since most or all of their
            tokens arrived together.
        tokens_per_chunk: on average, where that is more than one and the server does not say how
            many each has; else none.
        duration_s: from the first request's scheduled time to the last end.
        total_s: from the first request's begin to the last end, warm-up included: the total time
            of the llm-serving test client.
        offered_per_s: requests/s as scheduled; none in a closed loop, and of conversations, whose
            later turns depend on answers.
        requests_per_s, output_tokens_per_s: successful requests, and tokens that they generated,
            in each second of the duration; tokens of abandoned answers count, too.
        embedded: how many of the successful answers are embeddings or rankings, which have no first
            token.
        prompt_tokens, output_tokens: sums, by the server's count; none where it gives none.
        prompt_tokens_per_s: of successful requests, in each second of the duration.
        from_scheduled: what a user has waited.
        from_sent: what the server and the network took.
        tpot: time per output token, without the first.
        itl: inter-token latency, of all tokens together.
        queue: waiting for a slot.
        lateness: of the client.
        held: how long requests waited for ``max_concurrency``; without those that did not.
        goodput: under the objectives, where there are any.
        steady: whether an open loop reached a steady state; none in a closed loop, and of a stage.
        independent: observations that the requests are worth, since those that queue together
            are alike; of conversations, no more than these.
        conversations: none where requests stand alone.
        abandoned: none where users gave up nothing.
        prompt_reuse: none where the service does not tell.
        cut_short: the load was ended before all requests had an answer or a failure of their own.
        valid: whether the figures describe the service.
        findings: why not.
    """

    scheduled: int
    warmup: int
    requests: int
    ok: int
    failed: dict[str, int]
    refusal: Refusal | None = None
    cut_off: int = 0
    at_once: int = 0
    tokens_per_chunk: float | None = None
    duration_s: float
    total_s: float
    offered_per_s: float | None
    requests_per_s: float
    output_tokens_per_s: float | None
    prompt_tokens_per_s: float | None = None
    embedded: int = 0
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
    conversations: Conversations | None = None
    abandoned: Abandoned | None = None
    prompt_reuse: PromptReuse | None = None
    cut_short: bool = False
    valid: bool
    findings: tuple[AnyLoadFinding, ...] = ()

    @property
    def is_of_embeddings(self) -> bool:
        return 0 < self.ok == self.embedded


def metrics_of(
    point: LoadPoint,
    records: Sequence[EndedRequest],
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
    failed = Counter(failure(record) for record in measured if record.outcome != "ok")
    unknown = max(0, point.requests - len(records))
    duration_s = _span(measured, lambda record: record.scheduled_s)
    if slots is not None and point.max_concurrency is not None:
        slots = min(slots, point.max_concurrency)  # more are never busy
    held, abandoned = conversations_of(point, measured), abandoned_of(point, measured)
    queued = (point, measured) if held is None else in_steady_state(point, measured, held)
    steady = steady_state(*queued, slots)
    independent = _independent(point, measured, steady, held)
    # Turns of a conversation are alike, whatever queues.
    alone_steady = steady if held is None else None

    def summary(
        records: Sequence[EndedRequest],
        figure: Callable[[EndedRequest], float | None],
        since: Callable[[EndedRequest], float | None] | None = None,
    ) -> Distribution | None:
        both = [(record, value) for record in records if (value := figure(record)) is not None]
        values = [value for _, value in both]
        return distribution(values, independent, _waits(both, since, alone_steady), percentiles)

    def scheduled_s(record: EndedRequest) -> float:
        return record.scheduled_s

    def sent_s(record: EndedRequest) -> float | None:
        return record.sent_s

    lateness = summary(measured, latency.lateness_s)
    # An answer that was given up had its first token, and its time is known.
    begun = [
        record
        for record in measured
        if record.outcome == "ok"
        or (record.outcome == "abandoned" and record.first_chunk_s is not None)
    ]
    ttft = summary(begun, latency.ttft_s, scheduled_s)
    texts = [record for record in ok if record.dimensions is None]
    ttft_from_sent = summary(
        [record for record in begun if record.dimensions is None],
        lambda record: _since_sent(record, record.first_chunk_s),
        sent_s,
    )
    e2e_from_sent = summary(ok, lambda record: _since_sent(record, record.end_s), sent_s)
    doubts: list[LoadFinding] = [
        *about_client(lateness, (ttft_from_sent or e2e_from_sent) if ok else None),
        *about_requests(point, records, measured),
        *about_answers(ok, context_tokens, objectives),
    ]
    output = _sum(ok, lambda record: record.generated_tokens)
    prompts = _sum(ok, lambda record: record.prompt_tokens)
    if abandoned is not None:
        output = (output or 0) + abandoned.received_tokens if output is not None or not ok else None
    return Metrics(
        scheduled=point.requests,
        warmup=len(records) - len(measured),
        requests=len(measured),
        ok=len(ok),
        failed={**failed, **({"unknown": unknown} if unknown else {})},
        refusal=point.refusal,
        cut_off=sum(record.is_cut_off for record in ok),
        at_once=sum(record.is_at_once for record in ok),
        tokens_per_chunk=_tokens_per_chunk(ok),
        duration_s=duration_s,
        total_s=_span(records, lambda record: record.begun_s),
        offered_per_s=_offered(point, measured) if held is None else None,
        requests_per_s=_per_s(len(ok), duration_s),
        output_tokens_per_s=None if output is None else _per_s(output, duration_s),
        prompt_tokens_per_s=None if prompts is None else _per_s(prompts, duration_s),
        embedded=len(ok) - len(texts),
        prompt_tokens=prompts,
        output_tokens=output,
        from_scheduled=Latencies(e2e=summary(ok, latency.e2e_s, scheduled_s), ttft=ttft),
        from_sent=Latencies(e2e=e2e_from_sent, ttft=ttft_from_sent),
        tpot=summary(ok, latency.tpot_s),
        itl=distribution(
            array("d", (gap for record in ok for gap in record.gaps_s())),
            independent,
            chosen=percentiles,
        ),
        queue=summary(ok, latency.queue_s, sent_s),
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
            stands_alone=held is None,
        ),
        steady=steady,
        independent=independent,
        conversations=held,
        abandoned=abandoned,
        prompt_reuse=prompt_reuse(ok),
        cut_short=any(isinstance(each, Cancelled | Incomplete) for each in doubts),
        valid=not doubts,
        findings=tuple(doubts),
    )


def _goodput(
    measured: Sequence[EndedRequest],
    unknown: int,
    objectives: Objectives,
    duration_s: float,
    independent: float,
    searched: RateVerdict | None,
    steady: SteadyState | None,
    *,
    stands_alone: bool,
) -> Goodput:
    severities = [latency.severity(record, objectives) for record in measured]
    severities += [math.inf] * unknown
    margins_s = [latency.margin_s(record, objectives) for record in measured]
    waits = waits_in(
        margins_s + [-math.inf] * unknown,
        [(record.header_s or record.end_s) - record.scheduled_s for record in measured]
        + [0.0] * unknown,
        steady.remembered if steady and stands_alone else None,
    )
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
            judged(severities, independent, steady.stability if steady else None, waits)
            if severities
            else "undecided"
        ),
    )


def _independent(
    point: LoadPoint,
    measured: Sequence[EndedRequest],
    steady: SteadyState | None,
    held: Conversations | None,
) -> float:
    count = len(measured) if held is None else held.begun
    if steady is not None:
        return min(steady.independent, float(count))
    # Those that are in a service at the same time slow each other down.
    return count / point.concurrency if point.concurrency else 0.0


def _waits(
    figures: Sequence[tuple[EndedRequest, float]],
    since: Callable[[EndedRequest], float | None] | None,
    steady: SteadyState | None,
) -> QueueWaits | None:
    """Return what figures that count from ``since`` owe to a queue; none where it is not known."""
    if since is None or steady is None or steady.remembered is None:
        return None
    waits_s = [
        record.header_s - from_s
        for record, _ in figures
        if record.header_s is not None and (from_s := since(record)) is not None
    ]
    if len(waits_s) < len(figures):
        return None
    own_s = [value - wait_s for (_, value), wait_s in zip(figures, waits_s, strict=True)]
    return QueueWaits(waits_s=waits_s, own_s=own_s, remembered=steady.remembered)


def _offered(point: LoadPoint, measured: Sequence[EndedRequest]) -> float | None:
    if point.concurrency is not None or point.stage is not None or len(measured) < 2:
        return None
    span_s = measured[-1].scheduled_s - measured[0].scheduled_s
    return (len(measured) - 1) / span_s if span_s > 0 else None


def _since_sent(record: EndedRequest, time_s: float | None) -> float | None:
    return None if record.sent_s is None or time_s is None else time_s - record.sent_s


def _span(records: Sequence[EndedRequest], begin: Callable[[EndedRequest], float | None]) -> float:
    begins = [each for each in map(begin, records) if each is not None]
    # Requests that were cancelled before they were due have ended before they began.
    return max(0.0, max(each.end_s for each in records) - min(begins)) if begins else 0.0


def _per_s(count: float, duration_s: float) -> float:
    return count / duration_s if duration_s > 0 else 0.0


def _tokens_per_chunk(ok: Sequence[EndedRequest]) -> float | None:
    counted = [record for record in ok if record.has_uncounted_chunks]
    tokens = sum(record.generated_tokens or 0 for record in counted)
    chunks = sum(record.chunk_count for record in counted)
    return tokens / chunks if chunks and tokens > _MORE_TOKENS_THAN_CHUNKS * chunks else None


def _sum(
    records: Sequence[EndedRequest], count: Callable[[EndedRequest], int | None]
) -> int | None:
    counts = [count(record) for record in records]
    known = [each for each in counts if each is not None]
    return sum(known) if known and len(known) == len(counts) else None
