"""The requests of one point: when they go out, and what is watched meanwhile."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Callable, Sequence

from armload.analysis.load.live import SlidingWindow
from armload.analysis.load.records import RequestRecord
from armload.analysis.wording.live import live_rows
from armload.core.errors import (
    BoardError,
    ConnectError,
    LastingConnectError,
    RunError,
    TransferError,
)
from armload.core.progress import ProgressStep
from armload.core.values import counted
from armload.serving.client import Client, connected
from armload.serving.dialects.dialect import CompletionRequest
from armload.serving.monitor import RETURNS_WITHIN_S
from armload.serving.target import LoadLevel, LoadTarget, StopCondition

Note = Callable[[RequestRecord], None]
"""Keeps the record of a request that ended."""


GoesOn = Callable[[int], bool]
"""Whether the request of that number is still to be sent."""


async def open_loop(
    client: Client,
    asks: Sequence[CompletionRequest],
    times: Sequence[float],
    *,
    warmup: int,
    note: Note,
    goes_on: GoesOn | None = None,
) -> None:
    """Send each request at its time, and wait for all answers.

    Every request is noted, once: if this is cancelled, those under way and those to come are
    noted as cancelled.

    Args:
        times: in seconds since the client began, in order; one for each request.
        warmup: how many of the first are excluded from the figures.
        goes_on: is asked before each request; if not, the others are neither sent nor noted.
    """
    noted: set[int] = set()
    count = len(times)

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
                if goes_on is not None and not goes_on(number):
                    count = number
                    break
                group.create_task(send(number))
    finally:
        for number in sorted(set(range(count)) - noted):
            note(
                _never_sent(client, asks[number], number, times[number], is_warmup=number < warmup)
            )


async def closed_loop(
    client: Client,
    take: Callable[[], CompletionRequest],
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
    ask: CompletionRequest,
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


_LEAD_S = 0.2
"""Between opening the client and time 0, so that the first request is on time, too."""

_SHOW_S = 0.5
_CHECK_S = 2.0


class LiveView:
    """One point as it is shown while it runs.

    Args:
        slots: of the server; none where that is not known.
    """

    def __init__(self, level: LoadLevel, slots: int | None) -> None:
        self.window = SlidingWindow()
        self._level = f"{level} asked" if level.rate is not None else str(level)
        self._slots = slots

    def rows(self, client: Client) -> list[tuple[str, str]]:
        """Return what there is to say now."""
        figures = self.window.figures(client.now_s(), client.under_way.values())
        tokens = client.received_tokens
        return live_rows(figures, self._level, slots=self._slots, received_tokens=tokens)


class TooManyFailedError(RunError):
    """As many requests failed as a load may have failures."""


class PointRunner:
    """One point.

    Attributes:
        records: of the requests that ended, in the order of their ends.
        began_s: time 0 of the records, on this machine's monotonic clock.

    Args:
        keep: keeps a record durably.
        begun: is told time 0, shortly before it comes.
        live: is shown while it runs.
        goes_on: whether an open loop does, by the records until now and the time of its next
            request.
    """

    def __init__(
        self,
        target: LoadTarget,
        extent: StopCondition,
        keep: Callable[[RequestRecord], None],
        begun: Callable[[float], None],
        live: LiveView,
        goes_on: Callable[[Sequence[RequestRecord], float], bool] | None = None,
    ) -> None:
        self._goes_on = goes_on
        self._target = target
        self._extent = extent
        self._keep = keep
        self._begun = begun
        self._live = live
        self.records: list[RequestRecord] = []
        self.began_s = 0.0
        self._failed: Counter[str] = Counter()
        self._client: Client | None = None

    async def send(
        self,
        take: Callable[[], CompletionRequest],
        times: Sequence[float],
        level: LoadLevel,
        step: ProgressStep,
    ) -> None:
        """Send all requests, and return when each has an outcome.

        Args:
            take: gives the next request.
            times: of an open loop; empty for a closed one.

        Raises:
            TooManyFailedError: so many that the load ends.
            RunError: the service has ended; requests under way and to come were cancelled.
            ConnectError: its board does not answer.
            OSError: a record cannot be kept.
        """
        try:
            async with asyncio.TaskGroup() as group:
                beside = [
                    group.create_task(self._show(step)),
                    group.create_task(self._watch()),
                ]
                await self._send(take, times, level)
                for task in beside:
                    task.cancel()
            await self._check_at_the_end()
        except ExceptionGroup as errors:
            error = _first(errors)
            if isinstance(error, ConnectError):
                await self._check_at_the_end(error)
            raise error from errors
        step.update(len(self.records), note=self._note())

    async def _send(
        self, take: Callable[[], CompletionRequest], times: Sequence[float], level: LoadLevel
    ) -> None:
        target, extent = self._target, self._extent
        asks = [take() for _ in times]
        async with connected(target.api_key) as session:
            client = Client(
                *(session, target.url, target.dialect, target.model, extent.timeout_s),
                most=level.max_concurrency,
            )
            self._client = client
            client.begin(_LEAD_S)
            self.began_s = client.began_s
            self._begun(client.began_s)
            if level.concurrency is None:
                goes_on = self._goes_on
                await open_loop(
                    client,
                    asks,
                    times,
                    warmup=extent.warmup,
                    note=self._add,
                    goes_on=None
                    if goes_on is None
                    else lambda number: goes_on(self.records, times[number]),
                )
                return
            await asyncio.sleep(max(0.0, -client.now_s()))
            await closed_loop(
                client,
                take,
                concurrency=level.concurrency,
                duration_s=extent.duration_s,
                requests=extent.requests,
                warmup=extent.warmup,
                note=self._add,
            )

    def _add(self, record: RequestRecord) -> None:
        self.records.append(record)
        self._live.window.add(record)
        self._keep(record)
        if record.outcome in ("ok", "cancelled"):
            return
        self._failed[record.failure] += 1
        if self._failed.total() == self._extent.failures:
            kinds = ", ".join(f"{count} {kind}" for kind, count in self._failed.most_common())
            raise TooManyFailedError(
                f"Ended early: {counted(self._failed.total(), 'request')} failed ({kinds}), as "
                f"many as --abort-on allows. The last: {record.error}",
                "See the service's log. The records of the requests are kept.",
            )

    async def _show(self, step: ProgressStep) -> None:
        while True:
            rows = self._live.rows(self._client) if self._client else ()
            step.update(len(self.records), note=self._note(), rows=rows)
            await asyncio.sleep(_SHOW_S)

    def _note(self) -> str:
        failed = sum(record.outcome != "ok" for record in self.records)
        received = self._client.received_tokens if self._client else 0
        words = [f"{counted(received, 'token')} received"] if received else []
        return ", ".join([*words, *([f"{failed} failed"] if failed else [])])

    async def _check_at_the_end(self, silence: ConnectError | None = None) -> None:
        """Find out whether the service is the one that the load began with.

        A board that restarted does not answer for a while, and then says so.

        Args:
            silence: that has ended the load.

        Raises:
            RunError: the service has ended.
            ConnectError: the board does not answer.
        """
        until_s = time.monotonic() + RETURNS_WITHIN_S
        while (service := self._target.service) is not None:
            try:
                await asyncio.to_thread(service.check, is_certain=True)
            except LastingConnectError:
                raise
            except (ConnectError, TransferError, BoardError) as error:
                if time.monotonic() > until_s:
                    raise (silence or error) from error
            else:
                return
            await asyncio.sleep(_CHECK_S)

    async def _watch(self) -> None:
        while self._target.service is not None:
            await asyncio.to_thread(self._target.service.check)
            await asyncio.sleep(_CHECK_S)


def _first(errors: BaseExceptionGroup) -> BaseException:
    (error, *_) = errors.exceptions
    return _first(error) if isinstance(error, BaseExceptionGroup) else error
