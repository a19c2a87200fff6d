"""The two ways to send requests: each at its time, or each once the one before has its answer."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence

from armload.analysis.load.records import RequestRecord
from armload.serving.client import Client
from armload.serving.conversation import Conversation, Note, Place, never_sent, run_conversation


async def open_loop(
    client: Client,
    take: Callable[[], Conversation],
    times: Sequence[float],
    *,
    warmup: int,
    note: Note,
    goes_on: Callable[[float], bool] | None = None,
    context_tokens: int | None = None,
) -> None:
    """Begin each conversation at its time, and wait for the end of all.

    Every request is noted, once: if this is cancelled, those under way and those to come are
    noted as cancelled.

    Args:
        take: gives the next conversation; each is made while the one before waits for its time.
        times: in seconds since the client began, in order; one for each conversation.
        warmup: how many of the first are excluded from the figures.
        goes_on: is asked the time of each; if not, it and the others are neither begun nor noted.
        context_tokens: of a slot; none where they are not known.
    """
    unnoted: dict[int, tuple[Conversation, Place]] = {}
    first = begun = 0
    count = len(times)

    def take_next() -> None:
        nonlocal first, begun
        conversation = take()
        unnoted[begun] = (
            conversation,
            Place(
                conversation=begun,
                first=first,
                scheduled_s=times[begun],
                is_warmup=begun < warmup,
            ),
        )
        first, begun = first + len(conversation.requests), begun + 1

    async def send(number: int) -> None:
        conversation, place = unnoted[number]

        def note_turn(record: RequestRecord) -> None:
            unnoted.pop(number, None)
            note(record)

        await run_conversation(client, conversation, place, note_turn, context_tokens)

    try:
        async with asyncio.TaskGroup() as group:
            for number, time_s in enumerate(times):
                take_next()
                while (wait_s := time_s - client.now_s()) > 0:
                    await asyncio.sleep(wait_s)
                if goes_on is not None and not goes_on(time_s):
                    del unnoted[number]
                    count = number
                    break
                group.create_task(send(number))
    finally:
        for number in range(count):
            if number == begun:
                take_next()
            if (waiting := unnoted.pop(number, None)) is not None:
                conversation, place = waiting
                note(never_sent(client, conversation, place, 0, place.scheduled_s))


async def closed_loop(
    client: Client,
    take: Callable[[], Conversation],
    *,
    concurrency: int,
    duration_s: float | None,
    requests: int | None,
    warmup: int,
    note: Note,
    context_tokens: int | None,
) -> None:
    """Let a number of clients each hold a conversation, and begin the next when it has ended.

    If this is cancelled, requests under way are noted as cancelled.

    Args:
        take: gives the next conversation.
        duration_s: in which conversations begin.
        requests: how many conversations at most; one of the two must be given.
        warmup: how many of the first are excluded from the figures.
        context_tokens: of a slot; none where they are not known.
    """
    numbers = itertools.count() if requests is None else iter(range(requests))
    first = 0

    async def user() -> None:
        nonlocal first
        for number in numbers:
            scheduled_s = client.now_s()
            if duration_s is not None and scheduled_s >= duration_s:
                return
            conversation = take()
            place = Place(
                conversation=number,
                first=first,
                scheduled_s=scheduled_s,
                is_warmup=number < warmup,
            )
            first += len(conversation.requests)
            outcome = await run_conversation(client, conversation, place, note, context_tokens)
            if outcome == "cancelled":
                return

    async with asyncio.TaskGroup() as group:
        for _ in range(concurrency):
            group.create_task(user())
