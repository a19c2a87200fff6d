"""When requests go out: at drawn times, whatever the service does, or one after another."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence

from armload.analysis.load.records import RequestRecord
from armload.serving.ask import Ask
from armload.serving.client import Client

Note = Callable[[RequestRecord], None]
"""Keeps the record of a request that ended."""


async def open_loop(
    client: Client, asks: Sequence[Ask], times: Sequence[float], *, warmup: int, note: Note
) -> None:
    """Send each request at its time, and wait for all answers.

    Every request is noted, once: if this is cancelled, those under way and those to come are
    noted as cancelled.

    Args:
        times: in seconds since the client began, in order; one for each request.
        warmup: how many of the first are excluded from the figures.
    """
    noted: set[int] = set()

    async def send(number: int) -> None:
        record = await client.send(
            asks[number], number=number, scheduled_s=times[number], is_warmup=number < warmup
        )
        noted.add(number)
        note(record)

    try:
        async with asyncio.TaskGroup() as group:
            for number, time_s in enumerate(times):
                while (wait_s := time_s - client.now_s()) > 0:
                    await asyncio.sleep(wait_s)
                group.create_task(send(number))
    finally:
        for number in sorted(set(range(len(times))) - noted):
            note(
                _never_sent(client, asks[number], number, times[number], is_warmup=number < warmup)
            )


async def closed_loop(
    client: Client,
    take: Callable[[], Ask],
    *,
    concurrency: int,
    duration_s: float | None,
    requests: int | None,
    warmup: int,
    note: Note,
) -> None:
    """Let a number of clients each send a request, wait for its answer, and send the next.

    If this is cancelled, requests under way are noted as cancelled.

    Args:
        take: gives the next request.
        duration_s: in which requests begin.
        requests: how many at most; one of the two must be given.
        warmup: how many of the first are excluded from the figures.
    """
    numbers = itertools.count() if requests is None else iter(range(requests))

    async def user() -> None:
        for number in numbers:
            scheduled_s = client.now_s()
            if duration_s is not None and scheduled_s >= duration_s:
                return
            record = await client.send(
                take(), number=number, scheduled_s=scheduled_s, is_warmup=number < warmup
            )
            note(record)
            if record.outcome == "cancelled":
                return

    async with asyncio.TaskGroup() as group:
        for _ in range(concurrency):
            group.create_task(user())


def _never_sent(
    client: Client,
    ask: Ask,
    number: int,
    scheduled_s: float,
    *,
    is_warmup: bool,
) -> RequestRecord:
    return RequestRecord(
        number=number,
        is_warmup=is_warmup,
        scheduled_s=scheduled_s,
        end_s=client.now_s(),
        outcome="cancelled",
        error="the load was ended before this request was sent",
        limit_tokens=ask.max_tokens,
        prompt=ask.last,
    )
