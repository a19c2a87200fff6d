"""Why slow requests were slow: the part of their time that made them so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Literal

from armload.analysis.load.parts import Accounting, Parts
from armload.analysis.load.telemetry import Observed
from armload.core.values import Value

Cause = Literal[
    "client late",
    "queued",
    "blocked by a prompt",
    "shared steps",
    "paging",
    "throttling",
    "own length",
    "unexplained",
]
"""What made a request slow.

``client late``: it was sent after its time; ``queued``: all slots were taken; ``blocked by a
prompt``: its steps processed prompts of other requests; ``shared steps``: its steps generated
tokens of other requests, and took longer for it; ``paging``: the server waited for storage;
``throttling``: the cores ran at a lower frequency; ``own length``: by its own prompt and tokens
alone it is as slow.
"""

CAUSES: tuple[Cause, ...] = (
    "client late",
    "queued",
    "blocked by a prompt",
    "shared steps",
    "paging",
    "throttling",
    "own length",
    "unexplained",
)

Objective = Literal["ttft", "tpot", "e2e"]

SLOW_FROM = 2.0
"""Without objectives, a request is slow that took so many times as long as its own part."""

EXPLAINS = 0.25
"""Share of its own part, and of what it took beyond that, which a cause must have taken."""

_BY_PART: Mapping[str, Cause] = {
    "late_s": "client late",
    "queued_s": "queued",
    "blocked_s": "blocked by a prompt",
    "sharing_s": "shared steps",
    "paging_s": "paging",
    "throttling_s": "throttling",
}


class SlowRequest(Value):
    """One slow request.

    Attributes:
        number: of the request.
        cause: of its slowness.
        parts: where the time went in which it was slow: until the first token, after it, or all.
    """

    number: int
    cause: Cause
    parts: Parts


def slow_requests(
    observed: Observed, missed: Mapping[int, Objective] | None
) -> tuple[SlowRequest, ...]:
    """Return the slow ones among a point's answered requests, with the cause of each.

    Args:
        missed: the objective that a request missed, by its number; none where there are no
            objectives.
    """
    accounting = Accounting(observed)
    found = []
    for record in observed.counted:
        account = accounting.of(record)
        if record.outcome != "ok" or account is None:
            continue
        objective = "e2e" if missed is None else missed.get(record.number)
        parts = {"ttft": account.first, "tpot": account.rest}.get(objective or "", account.whole)
        if objective is None or (missed is None and parts.total_s < SLOW_FROM * parts.own_s):
            continue
        cause = _cause(parts, reads_steadily=accounting.reads_steadily)
        found.append(SlowRequest(number=record.number, cause=cause, parts=parts))
    return tuple(found)


def tally(slow: Iterable[SlowRequest]) -> Counter[Cause]:
    """Count the causes."""
    return Counter(each.cause for each in slow)


def _cause(parts: Parts, *, reads_steadily: bool) -> Cause:
    excess_s = parts.total_s - parts.own_s
    largest = max(_BY_PART, key=lambda name: getattr(parts, name))
    if getattr(parts, largest) >= EXPLAINS * max(excess_s, parts.own_s):
        return _BY_PART[largest]
    if parts.own_s >= excess_s:
        return "paging" if reads_steadily else "own length"
    return "unexplained"
