"""The latencies of one request, and the phases of its time on the server."""

from __future__ import annotations

import math
from dataclasses import dataclass
from http import HTTPStatus

from armload.analysis.load.records import Objective, Objectives
from armload.analysis.load.request_columns import EndedRequest

FEWEST_TOKENS_FOR_TPOT = 2


def first_token_s(record: EndedRequest) -> float:
    """Return when the first text arrived; the end of an answer that has none."""
    return record.end_s if record.first_chunk_s is None else record.first_chunk_s


def e2e_s(record: EndedRequest) -> float:
    """Return the end-to-end latency from the scheduled time."""
    return record.end_s - record.scheduled_s


def ttft_s(record: EndedRequest) -> float | None:
    """Return the time to the first token from the scheduled time; none of an embedding."""
    return None if record.dimensions else first_token_s(record) - record.scheduled_s


def tpot_s(record: EndedRequest) -> float | None:
    """Return the time per output token after the first; none of fewer than two tokens.

    By vLLM's definition: (end-to-end latency - time to first token) / (tokens - 1).
    """
    tokens = record.generated_tokens
    if tokens is None or tokens < FEWEST_TOKENS_FOR_TPOT:
        return None
    return (record.end_s - first_token_s(record)) / (tokens - 1)


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
    """Return how much of its objectives a request takes; above 1 it misses one."""
    if record.outcome != "ok" or (objectives.tpot_s and record.generated_tokens is None):
        return math.inf
    shares = (
        (ttft_s(record), objectives.ttft_s),
        (tpot_s(record), objectives.tpot_s),
        (e2e_s(record), objectives.e2e_s),
    )
    known = [each for each in shares if None not in each]
    return max((value / limit for value, limit in known if value and limit), default=0.0)


def margin_s(record: EndedRequest, objectives: Objectives | None) -> float:
    """Return how much longer a request could have waited; minus infinity if it is not good."""
    if objectives is None:
        return math.inf
    tpot = tpot_s(record)
    if record.outcome != "ok" or (objectives.tpot_s and (tpot or 0.0) > objectives.tpot_s):
        return -math.inf
    limits = ((ttft_s(record), objectives.ttft_s), (e2e_s(record), objectives.e2e_s))
    known = [(value, limit) for value, limit in limits if value is not None and limit is not None]
    return min((limit - value for value, limit in known), default=math.inf)


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
