"""What users did over time: conversations, requests that they gave up, prompts that repeat.

The turns of a conversation depend on each other: on what was said before, and on when it was
answered. Conversations do not, so they are what is counted as independent.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Literal

from armload.analysis.load.records import LoadPoint, Outcome
from armload.analysis.load.request_columns import EndedRequest
from armload.core.values import Value, counted

Ending = Literal["complete", "context-full", "abandoned", "failed", "cancelled"]
"""How a conversation ended: with the answer to its last turn, or with what became of another."""

_ENDINGS: Mapping[Ending, str] = {
    "context-full": "outgrew the context of a slot",
    "abandoned": "abandoned",
    "failed": "ended by a failed request",
    "cancelled": "cancelled",
}

_LONG_ONES = 0.9
_MOST_FILLING = 0.5
"""Share of the time in which conversations begin, after which as many end as begin."""


class Conversations(Value):
    """The conversations of a point, after the warm-up.

    Attributes:
        begun: of which a turn was due.
        ended: how many in which way.
        turns: that were sent of each, on average.
        length_s: 90th percentile of the complete ones, from the first turn's time to the last
            answer; none without a complete one.
        span_s: in which they began, as scheduled; none in a closed loop.
    """

    begun: int
    ended: dict[Ending, int]
    turns: float
    length_s: float | None
    span_s: float | None = None

    @property
    def begun_per_s(self) -> float | None:
        """How fast they began."""
        return (self.begun - 1) / self.span_s if self.span_s else None

    @property
    def is_steady(self) -> bool:
        """Whether, most of the time, about as many conversations ended as began."""
        if self.length_s is None or self.span_s is None:
            return False
        return self.length_s <= _MOST_FILLING * self.span_s

    def sentence(self) -> str:
        complete = self.ended.get("complete", 0)
        held = f"{counted(self.begun, 'conversation')} of {self.turns:.3g} turns on average"
        if complete == self.begun:
            return f"{held}, all complete."
        words = [f"{complete:,} complete"] if complete else []
        words += [
            f"{self.ended[how]:,} {what}" for how, what in _ENDINGS.items() if how in self.ended
        ]
        return f"{held}: {', '.join(words)}."

    def no_steady_state(self) -> str:
        """Say why they have no confidence intervals; nothing where they may have some."""
        if self.span_s is None or self.is_steady:
            return ""
        if self.length_s is None:
            return "no confidence intervals: no conversation was completed."
        return (
            f"no confidence intervals: conversations take {self.length_s:.3g} s, but new ones "
            f"began for only {self.span_s:.3g} s, so most of the load was ramp-up. Use a longer "
            "--duration."
        )


class Abandoned(Value):
    """Requests that users gave up, after the warm-up.

    Attributes:
        requests: how many.
        unanswered: of which no text had come.
        received_tokens: of the others.
        freed_s, left_busy: as in the point.
    """

    requests: int
    unanswered: int
    received_tokens: int
    freed_s: float | None
    left_busy: int

    def sentence(self, requests: int) -> str:
        said = (
            f"users abandoned {self.requests:,} of {counted(requests, 'request')}, "
            f"{self.unanswered:,} of them before any text arrived. End-to-end latencies cover only "
            "the other requests, which were faster."
        )
        if self.left_busy:
            said += (
                f" Long after the last request had ended, {counted(self.left_busy, 'request')} "
                "kept the service busy: it may not notice that users have left."
            )
        return said


class PromptReuse(Value):
    """Prompt tokens that the server had in its cache, of answers for which it tells.

    Attributes:
        cached_tokens: that were not processed again.
        prompt_tokens: all.
    """

    cached_tokens: int
    prompt_tokens: int
    hit_rate: float

    def sentence(self) -> str:
        return (
            f"{self.hit_rate:.0%} of the prompt tokens came from the server's cache "
            f"({self.cached_tokens:,} of {self.prompt_tokens:,})."
        )


def conversations_of(point: LoadPoint, records: Sequence[EndedRequest]) -> Conversations | None:
    """Return what became of conversations; none where requests stand alone.

    Args:
        records: after the warm-up, those of a conversation one after another.
    """
    held = [
        list(turns)
        for number, turns in groupby(records, key=lambda record: record.conversation)
        if number is not None
    ]
    if not held:
        return None
    begins_s = [turns[0].scheduled_s for turns in held]
    span_s = max(begins_s) - min(begins_s)
    lengths_s = sorted(
        turns[-1].end_s - turns[0].scheduled_s for turns in held if _ending(turns) == "complete"
    )
    length_s = lengths_s[math.ceil(_LONG_ONES * len(lengths_s)) - 1] if lengths_s else None
    return Conversations(
        begun=len(held),
        ended=dict(Counter(map(_ending, held))),
        turns=sum(map(len, held)) / len(held),
        length_s=length_s,
        span_s=None if point.rate is None else span_s,
    )


def _ending(turns: Sequence[EndedRequest]) -> Ending:
    last = turns[-1]
    if last.outcome == "ok":
        return "complete" if last.turn == last.turns - 1 else "cancelled"
    endings: dict[Outcome, Ending] = {
        "abandoned": "abandoned",
        "context-full": "context-full",
        "cancelled": "cancelled",
    }
    return endings.get(last.outcome, "failed")


def in_steady_state(
    point: LoadPoint, records: Sequence[EndedRequest], found: Conversations
) -> tuple[LoadPoint, list[EndedRequest]]:
    """Return turns as requests of a point that is at the rate of turns.

    At first no conversation has a second turn, and after the last one has begun fewer and fewer
    go on: turns of either time are left out. All are where these are most of the time.
    """
    if point.rate is None or found.length_s is None or not found.is_steady:
        return point, []
    begins_s = [record.scheduled_s for record in records if record.turn == 0]
    from_s, to_s = min(begins_s) + found.length_s, max(begins_s)
    within = [record for record in records if from_s <= record.scheduled_s <= to_s]
    within.sort(key=lambda record: record.scheduled_s)
    return point.model_copy(update={"rate": point.rate * found.turns}), within


def abandoned_of(point: LoadPoint, records: Sequence[EndedRequest]) -> Abandoned | None:
    """Return what users gave up of these requests; none where they gave up nothing."""
    left = [record for record in records if record.outcome == "abandoned"]
    if not left:
        return None
    return Abandoned(
        requests=len(left),
        unanswered=sum(record.first_chunk_s is None for record in left),
        received_tokens=sum(record.received_tokens for record in left),
        freed_s=point.freed_s,
        left_busy=point.left_busy,
    )


def prompt_reuse(answered: Sequence[EndedRequest]) -> PromptReuse | None:
    """Return how much of the prompts the server had in its cache; none where it does not tell."""
    told = [
        (record.cached_tokens, record.prompt_tokens)
        for record in answered
        if record.cached_tokens is not None and record.prompt_tokens
    ]
    if not told:
        return None
    cached, prompts = (sum(counts) for counts in zip(*told, strict=True))
    return PromptReuse(cached_tokens=cached, prompt_tokens=prompts, hit_rate=cached / prompts)
