"""A conversation: each turn is sent some time after the answer to the one before, which it quotes.

A request that stands alone is a conversation of one turn.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from armload.analysis.load.records import Outcome, RequestRecord
from armload.analysis.load.request_columns import has_filled
from armload.serving.client import Client
from armload.serving.dialects.dialect import ChatMessage, CompletionRequest

Note = Callable[[RequestRecord], None]
"""Keeps the record of a request that ended."""

_TOO_LONG = re.compile(
    r"context (?:size|length)|maximum model length|`inputs` (?:must have less than|tokens \+)"
    r"|prompt_out_of_range",
    re.IGNORECASE,
)
"""In how llama-server, vLLM, SGLang, TGI, OpenAI and llm-serving refuse a prompt as too long."""


@dataclass(frozen=True, kw_only=True)
class Conversation:
    """What a user will ask, and when.

    Attributes:
        requests: of each turn, without the turns before.
        think_s: before each turn but the first.
        patience_s: of each turn, from its scheduled time.
        stands_alone: it is a single request, and no conversation.
    """

    requests: tuple[CompletionRequest, ...]
    think_s: tuple[float, ...]
    patience_s: tuple[float, ...]
    stands_alone: bool


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a conversation stands in a point of a load.

    Attributes:
        conversation: its number, from 0.
        first: the number of its first request.
    """

    conversation: int
    first: int
    scheduled_s: float
    is_warmup: bool


async def run_conversation(
    client: Client,
    conversation: Conversation,
    place: Place,
    note: Note,
    context_tokens: int | None,
) -> Outcome:
    """Hold a conversation until a turn gets no whole answer, and return the last outcome.

    If this is cancelled, the turn under way is noted as cancelled, or the one to come.

    Args:
        context_tokens: of a slot; none where they are not known.
    """
    history: tuple[ChatMessage, ...] = ()
    due_s = place.scheduled_s
    outcome: Outcome = "ok"
    for turn, request in enumerate(conversation.requests):
        try:
            while turn and (wait_s := due_s - client.now_s()) > 0:
                await asyncio.sleep(wait_s)
        except asyncio.CancelledError:
            note(never_sent(client, conversation, place, turn, due_s))
            raise
        whole = request.model_copy(update={"history": history}) if turn else request
        record = await client.send(
            whole,
            number=place.first + turn,
            scheduled_s=due_s,
            is_warmup=place.is_warmup,
            patience_s=conversation.patience_s[turn],
        )
        if not conversation.stands_alone:
            known = _as_turn(conversation, place, turn) | _outgrown(record, turn, context_tokens)
            record = record.model_copy(update=known)
        note(record)
        outcome = record.outcome
        if outcome != "ok" or turn == len(conversation.think_s):
            break
        history = whole.answered(record.answer)
        due_s = record.end_s + conversation.think_s[turn]
    return outcome


def never_sent(
    client: Client, conversation: Conversation, place: Place, turn: int, due_s: float
) -> RequestRecord:
    """Return the record of a turn that was not sent when the load was ended."""
    request = conversation.requests[turn]
    return RequestRecord(
        number=place.first + turn,
        is_warmup=place.is_warmup,
        scheduled_s=due_s,
        end_s=client.now_s(),
        outcome="cancelled",
        error="the load was ended before this request was sent",
        limit_tokens=request.max_tokens,
        prompt=request.last,
        **({} if conversation.stands_alone else _as_turn(conversation, place, turn)),
    )


def is_too_long(error: str) -> bool:
    """Say whether a service refused a prompt because it does not fit the context."""
    return bool(_TOO_LONG.search(error))


def _as_turn(conversation: Conversation, place: Place, turn: int) -> dict[str, Any]:
    return {
        "conversation": place.conversation,
        "turn": turn,
        "turns": len(conversation.requests),
    }


def _outgrown(record: RequestRecord, turn: int, context_tokens: int | None) -> dict[str, Any]:
    is_refused = record.outcome in ("http", "server-error") and is_too_long(record.error)
    if turn and is_refused:
        return {"outcome": "context-full"}
    if record.outcome == "ok" and has_filled(record, context_tokens):
        return {"outcome": "context-full", "error": "the answer filled the context of its slot"}
    return {}
