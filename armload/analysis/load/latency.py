"""The latencies of one request, and the phases of its time on the server."""

from __future__ import annotations

import math
from dataclasses import dataclass
from http import HTTPStatus

from armload.analysis.load.records import Objective, Objectives
from armload.analysis.load.request_columns import EndedRequest, did_less


def e2e_s(record: EndedRequest) -> float:
    """Return the end-to-end latency from the scheduled time."""
    return record.end_s - record.scheduled_s


def ttft_s(record: EndedRequest) -> float | None:
    """Return the time to the first text from the scheduled time; none where there is none."""
    first_s = record.first_chunk_s
    return None if first_s is None else first_s - record.scheduled_s


def tpot_s(record: EndedRequest) -> float | None:
    """Return the time per output token after the first text; none where none was observed.

    By vLLM's definition: (end-to-end latency - time to first token) / (tokens - 1). Where more
    than one token came with the first text, those are not counted either.
    """
    if not record.later_tokens or record.first_chunk_s is None:
        return None
    return (record.end_s - record.first_chunk_s) / record.later_tokens


def queue_s(record: EndedRequest) -> float | None:
    """Return how long a request waited for a slot; none where the server does not tell.

    llama-server sends the header of a stream when a slot takes the request. Its own timings show
    that it is one.
    """
    if not record.is_timed or record.header_s is None or record.sent_s is None:
        return None
    return record.header_s - record.sent_s


def lateness_s(record: EndedRequest) -> float | None:
    """Return how much later the client began with a request than it was to."""
    if record.begun_s is None:
        return None
    return record.begun_s - record.scheduled_s - record.held_s


def missed_objective(record: EndedRequest, objectives: Objectives) -> Objective | None:
    """Return the first objective that an answered request missed; none if it met all."""
    found: tuple[tuple[Objective, float | None, float | None], ...] = (
        ("ttft", ttft_s(record), objectives.ttft_s),
        ("tpot", tpot_s(record), objectives.tpot_s),
        ("e2e", e2e_s(record), objectives.e2e_s),
    )
    for name, value_s, limit_s in found:
        if value_s is not None and limit_s is not None and value_s > limit_s:
            return name
    return None


def severity(record: EndedRequest, objectives: Objectives) -> float:
    """Return how much of its objectives a request takes; above 1 it misses one.

    An objective on a figure that was not observed is missed, and so is every one of an answer for
    which the service did less than it was asked to.
    """
    if record.outcome != "ok" or did_less(record):
        return math.inf
    limits = ((ttft_s(record), objectives.ttft_s), (e2e_s(record), objectives.e2e_s))
    return max(_pace(record, objectives), *(_share(value, limit) for value, limit in limits))


def _pace(record: EndedRequest, objectives: Objectives) -> float:
    # A single token has no time per token.
    return _share(0.0 if record.later_tokens == 0 else tpot_s(record), objectives.tpot_s)


def _share(value_s: float | None, limit_s: float | None) -> float:
    if limit_s is None:
        return 0.0
    return math.inf if value_s is None else value_s / limit_s


def margin_s(record: EndedRequest, objectives: Objectives | None) -> float:
    """Return how much longer a request could have waited; minus infinity if it is not good."""
    if objectives is None:
        return math.inf
    if record.outcome != "ok" or did_less(record) or _pace(record, objectives) > 1:
        return -math.inf
    limits = ((ttft_s(record), objectives.ttft_s), (e2e_s(record), objectives.e2e_s))
    return min(
        (
            -math.inf if value is None else limit - value
            for value, limit in limits
            if limit is not None
        ),
        default=math.inf,
    )


@dataclass(frozen=True, kw_only=True)
class Phases:
    """The phases of one request, each from its beginning to that of the next.

    Attributes:
        scheduled_s, held_s, sent_s: as in the record.
        begun_s: when the client began with it; that is when it was sent, where no more is known.
        slot_s: when a slot of the server began with it; none if that never happened.
        first_s: when the first part of the answer arrived; none likewise.
        end_s: when it ended.
    """

    scheduled_s: float
    held_s: float
    begun_s: float
    sent_s: float
    slot_s: float | None
    first_s: float | None
    end_s: float

    @property
    def late_s(self) -> float:
        """How much later the client began with it than it was to."""
        return self.begun_s - self.scheduled_s - self.held_s

    @property
    def queued_s(self) -> float:
        """How long it waited for a slot."""
        return (self.end_s if self.slot_s is None else self.slot_s) - self.sent_s

    @property
    def prompt_s(self) -> float:
        """From the slot's beginning to the answer's."""
        if self.slot_s is None:
            return 0.0
        return (self.end_s if self.first_s is None else self.first_s) - self.slot_s


def phases_of(record: EndedRequest) -> Phases | None:
    """Return the phases of a request; none for one that was never sent.

    llama-server sends the headers of a stream when a slot begins with its prompt. Of a server that
    does not, the time in its queue cannot be told from that of the prompt, and counts as that.
    """
    if record.sent_s is None:
        return None
    is_taken = record.status is None or record.status < HTTPStatus.BAD_REQUEST
    is_known = record.is_timed or record.outcome != "ok"
    return Phases(
        scheduled_s=record.scheduled_s,
        held_s=record.held_s,
        begun_s=record.sent_s if record.begun_s is None else record.begun_s,
        sent_s=record.sent_s,
        slot_s=(record.header_s if is_known else record.sent_s) if is_taken else None,
        first_s=record.first_chunk_s,
        end_s=record.end_s,
    )
