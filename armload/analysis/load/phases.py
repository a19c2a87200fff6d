"""When a request waited for a slot, had its prompt processed, and was answered."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus

from armload.analysis.load.request import RequestRecord


@dataclass(frozen=True, kw_only=True)
class Phases:
    """The phases of one request, each from its beginning to that of the next.

    Attributes:
        scheduled_s, sent_s: as in the record.
        begun_s: when the client began with it; that is when it was sent, where no more is known.
        slot_s: when a slot of the server began with it; none if that never happened.
        first_s: when the first part of the answer arrived; none likewise.
        end_s: when it ended.
    """

    scheduled_s: float
    begun_s: float
    sent_s: float
    slot_s: float | None
    first_s: float | None
    end_s: float

    @property
    def late_s(self) -> float:
        """How long after its scheduled time the client began with it."""
        return self.begun_s - self.scheduled_s

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


def phases_of(record: RequestRecord) -> Phases | None:
    """Return the phases of a request; none for one that was never sent.

    llama-server sends the headers of a stream when a slot begins with its prompt. Of a server that
    sends them at once, the time in its queue cannot be told from that of the prompt.
    """
    if record.sent_s is None:
        return None
    is_taken = record.status is None or record.status < HTTPStatus.BAD_REQUEST
    return Phases(
        scheduled_s=record.scheduled_s,
        begun_s=record.sent_s if record.begun_s is None else record.begun_s,
        sent_s=record.sent_s,
        slot_s=record.header_s if is_taken else None,
        first_s=record.chunks[0][0] if record.chunks else None,
        end_s=record.end_s,
    )
