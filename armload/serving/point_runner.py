"""The requests of one point: when they go out, and what is watched meanwhile."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Callable, Sequence

from armload.analysis.load.live import SlidingWindow
from armload.analysis.load.records import ENDED_BY_THE_USER, Outcome, RequestRecord
from armload.analysis.load.request_columns import failure
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
from armload.serving.conversation import Conversation, Note, Place, converse, never_sent
from armload.serving.monitor import RETURNS_WITHIN_S, UNREACHABLE_AFTER_S
from armload.serving.target import LoadLevel, LoadTarget, StopCondition

GoesOn = Callable[[int], bool]
"""Whether the conversation of that number is still to begin."""


async def open_loop(
    client: Client,
    take: Callable[[], Conversation],
    times: Sequence[float],
    *,
    warmup: int,
    note: Note,
    goes_on: GoesOn | None = None,
    context_tokens: int | None = None,
) -> None:
    """Begin each conversation at its time, and wait for the end of all.

    Every request is noted, once: if this is cancelled, those under way and those to come are
    noted as cancelled.

    Args:
        take: gives the next conversation; each is made while the one before waits for its time.
        times: in seconds since the client began, in order; one for each conversation.
        warmup: how many of the first are excluded from the figures.
        goes_on: is asked before each; if not, the others are neither begun nor noted.
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
        first, begun = first + len(conversation.asks), begun + 1

    async def send(number: int) -> None:
        conversation, place = unnoted[number]

        def note_turn(record: RequestRecord) -> None:
            unnoted.pop(number, None)
            note(record)

        await converse(client, conversation, place, note_turn, context_tokens)

    try:
        async with asyncio.TaskGroup() as group:
            for number, time_s in enumerate(times):
                take_next()
                while (wait_s := time_s - client.now_s()) > 0:
                    await asyncio.sleep(wait_s)
                if goes_on is not None and not goes_on(number):
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
    context_tokens: int | None = None,
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
            first += len(conversation.asks)
            outcome = await converse(client, conversation, place, note, context_tokens)
            if outcome == "cancelled":
                return

    async with asyncio.TaskGroup() as group:
        for _ in range(concurrency):
            group.create_task(user())


_LEAD_S = 0.2
"""Between opening the client and time 0, so that the first request is on time, too."""

_SHOW_S = 0.5
_CHECK_S = 2.0


class LiveView:
    """One point as it is shown while it runs.

    Args:
        level: how fast requests are to come, for people, by the time since the beginning.
        slots: of the server; none where that is not known.
    """

    def __init__(self, level: Callable[[float], str], slots: int | None) -> None:
        self.window = SlidingWindow()
        self._level = level
        self._slots = slots

    def rows(self, client: Client) -> list[tuple[str, str]]:
        """Return what there is to say now."""
        now_s = client.now_s()
        figures = self.window.figures(now_s, client.under_way.values())
        tokens = client.received_tokens
        return live_rows(figures, self._level(now_s), slots=self._slots, received_tokens=tokens)


class TooManyFailedError(RunError):
    """As many requests failed as a load may have failures."""


class PointRunner:
    """One point.

    Attributes:
        ended: requests.
        last_end_s: when the last of them did.
        outcomes: how they ended; ``measured``: those after the warm-up.
        began_s: time 0 of the records, on this machine's monotonic clock.

    Args:
        keep: keeps a record durably.
        begun: is told time 0, shortly before it comes.
        live: is shown while it runs.
        goes_on: whether an open loop does, by the time of its next request.
    """

    def __init__(
        self,
        target: LoadTarget,
        extent: StopCondition,
        keep: Callable[[RequestRecord], None],
        begun: Callable[[float], None],
        live: LiveView,
        goes_on: Callable[[float], bool] | None = None,
    ) -> None:
        self._goes_on = goes_on
        self._target = target
        self._extent = extent
        self._keep = keep
        self._begun = begun
        self._live = live
        self.ended = 0
        self.last_end_s = self.began_s = 0.0
        self.outcomes: Counter[Outcome] = Counter()
        self.measured: Counter[Outcome] = Counter()
        self._failed: Counter[str] = Counter()
        self._client: Client | None = None

    async def send(
        self,
        take: Callable[[], Conversation],
        times: Sequence[float],
        level: LoadLevel,
        step: ProgressStep,
    ) -> None:
        """Send all requests, and return when each has an outcome.

        Args:
            take: gives the next conversation.
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
        step.update(self.ended, note=self._note())

    async def _send(
        self, take: Callable[[], Conversation], times: Sequence[float], level: LoadLevel
    ) -> None:
        target, extent = self._target, self._extent
        context_tokens = (target.settings or {}).get("context_tokens")
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
                    take,
                    times,
                    warmup=extent.warmup,
                    note=self._add,
                    goes_on=None if goes_on is None else lambda number: goes_on(times[number]),
                    context_tokens=context_tokens,
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
                context_tokens=context_tokens,
            )

    def _add(self, record: RequestRecord) -> None:
        self.ended += 1
        self.last_end_s = max(self.last_end_s, record.end_s)
        self.outcomes[record.outcome] += 1
        if not record.is_warmup:
            self.measured[record.outcome] += 1
        self._live.window.add(record)
        self._keep(record)
        if record.outcome == "ok" or record.outcome in ENDED_BY_THE_USER:
            return
        self._failed[failure(record)] += 1
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
            step.update(self.ended, note=self._note(), rows=rows)
            await asyncio.sleep(_SHOW_S)

    def _note(self) -> str:
        failed = self._failed.total()
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
        while (service := self._target.service) is not None:
            try:
                # Where the board is gone, each of several attempts waits for a minute.
                async with asyncio.timeout(UNREACHABLE_AFTER_S):
                    await asyncio.to_thread(service.check)
            except TimeoutError as error:
                raise ConnectError(
                    f"The board has not answered for {UNREACHABLE_AFTER_S:g} s."
                ) from error
            await asyncio.sleep(_CHECK_S)


def _first(errors: BaseExceptionGroup) -> BaseException:
    (error, *_) = errors.exceptions
    return _first(error) if isinstance(error, BaseExceptionGroup) else error
