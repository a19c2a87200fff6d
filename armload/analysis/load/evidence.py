"""What requests show in a search for the highest rate, while it still runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import fmean, pvariance

from armload.analysis.load.latency import e2e_s, margin_s, severity
from armload.analysis.load.quantiles import QueueWaits
from armload.analysis.load.queue_model import Counted, SaturatedRun
from armload.analysis.load.records import Objectives, RateVerdict
from armload.analysis.load.request_columns import EndedRequest
from armload.analysis.load.steady import ServedTimes, SteadyState, judged, steady, waits_in
from armload.analysis.statistics import Interval


def saturated(
    records: Sequence[EndedRequest],
    clients: int,
    objectives: Objectives | None,
    *,
    knows_slots: bool,
) -> SaturatedRun:
    """Return what a closed loop shows; at least one of its requests succeeded."""
    ok = [record for record in records if record.outcome == "ok"]
    seconds = max(record.end_s for record in records) - min(r.scheduled_s for r in records)
    # At the end, clients wait for the last answers without a request of their own.
    last_begun_s = max(record.scheduled_s for record in records)
    full_s = last_begun_s - min(record.scheduled_s for record in records)
    answered = sum(record.end_s <= last_begun_s for record in ok)
    if answered < clients or full_s <= 0:
        answered, full_s = len(ok), seconds
    times = [e2e_s(record) for record in ok]
    spread = pvariance(times) / fmean(times) ** 2
    per_s = answered / full_s
    error = 1.96 * math.sqrt(max(spread, 1 / answered) / answered)
    return SaturatedRun(
        clients=clients,
        knows_slots=knows_slots,
        per_s=Interval(low=per_s * max(0.05, 1 - error), high=per_s * (1 + error)),
        spread=spread,
        margins_s=tuple(margin_s(record, objectives) for record in ok),
    )


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What a rate has shown by some time.

    Attributes:
        severities: of its requests after the warm-up, in order.
        margins_s: likewise.
        waits: of these requests; none where they are not known.
        steady: of the backlog.
    """

    severities: Sequence[float]
    margins_s: Sequence[float]
    waits: QueueWaits | None
    steady: SteadyState

    @property
    def counted(self) -> Counted:
        return Counted(
            requests=len(self.severities),
            missed=sum(each > 1 for each in self.severities),
            independent=min(self.steady.independent, float(len(self.severities))),
        )


def judged_with(above: Sequence[Evidence], found: Evidence, level: float) -> RateVerdict:
    """Say whether a rate is sustained, by its requests and those at higher rates."""
    every = [*above, found]
    waits = [each.waits for each in every if each.waits is not None]
    if len(waits) < len(every):
        joined = None
    else:
        joined = QueueWaits(
            waits_s=list(chain.from_iterable(each.waits_s for each in waits)),
            own_s=list(chain.from_iterable(each.own_s for each in waits)),
            remembered=max(each.remembered for each in waits),
        )
    verdict = judged(
        list(chain.from_iterable(each.severities for each in every)),
        sum(each.steady.independent for each in every),
        found.steady.stability,
        joined,
        level,
    )
    if verdict == "sustained" or not above:
        return verdict
    # That it is not, only its own requests can show.
    return judged(
        found.severities, found.steady.independent, found.steady.stability, found.waits, 0.0
    )


def evidence_of(
    records: Sequence[EndedRequest],
    open_since_s: Sequence[float],
    rate: float,
    slots: int | None,
    objectives: Objectives,
    now_s: float,
) -> Evidence | None:
    """Return what requests show while some are still open; none of too few.

    One that is open counts as far as it has missed an objective already. Those after the first
    whose fate is unknown are left out of the latencies, or only the quick ones would count.

    Args:
        records: of those that ended, without the warm-up.
        open_since_s: when those that have not ended were scheduled.
    """
    ended = [(record.scheduled_s, record) for record in records]
    waiting = [(due_s, None) for due_s in open_since_s]
    both = sorted([*ended, *waiting], key=lambda each: each[0])
    limit_s = min(objectives.ttft_s or math.inf, objectives.e2e_s or math.inf)
    severities: list[float] = []
    margins: list[float] = []
    waits_s: list[float] = []
    for due_s, record in both:
        if record is not None:
            severities.append(severity(record, objectives))
            margins.append(margin_s(record, objectives))
            waits_s.append((record.header_s or record.end_s) - due_s)
        elif now_s - due_s > (objectives.e2e_s or math.inf):
            severities.append((now_s - due_s) / limit_s)
            margins.append(limit_s - (now_s - due_s))
            waits_s.append(now_s - due_s)
        else:
            break
    if len(severities) < 2:
        return None
    known = ServedTimes.of([record for _, record in ended], tells_slots=slots is not None)
    times = known.with_open(open_since_s)
    found = steady(times, rate, slots)
    return Evidence(
        severities=severities,
        margins_s=margins,
        waits=waits_in(margins, waits_s, found.remembered),
        steady=found,
    )
