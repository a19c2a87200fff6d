"""The requests of one point: when they go out, and what is watched meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence

from armload.analysis.load.live import SlidingWindow, live_rows
from armload.analysis.load.records import ENDED_BY_THE_USER, Outcome, RequestRecord
from armload.analysis.load.request_columns import failure
from armload.core.errors import (
    BoardError,
    ConnectError,
    PermanentConnectError,
    RunError,
    TransferError,
)
from armload.core.progress import ProgressStep
from armload.core.values import counted
from armload.serving.client import Client
from armload.serving.connections import connected
from armload.serving.conversation import Conversation
from armload.serving.loops import closed_loop, open_loop
from armload.serving.monitor import RETURNS_WITHIN_S, UNREACHABLE_AFTER_S
from armload.serving.target import LoadLevel, LoadTarget, StopCondition

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
        stop: StopCondition,
        keep: Callable[[RequestRecord], None],
        begun: Callable[[float], None],
        live: LiveView,
        goes_on: Callable[[float], bool] | None = None,
    ) -> None:
        self._goes_on = goes_on
        self._target = target
        self._stop = stop
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
        target, stop = self._target, self._stop
        context_tokens = (target.settings or {}).get("context_tokens")
        async with connected(target.api_key) as session:
            client = Client(
                *(session, target.url, target.dialect, target.model, stop.timeout_s),
                most=level.max_concurrency,
            )
            self._client = client
            client.begin(_LEAD_S)
            self.began_s = client.began_s
            self._begun(client.began_s)
            if level.concurrency is None:
                await open_loop(
                    client,
                    take,
                    times,
                    warmup=stop.warmup,
                    note=self._add,
                    goes_on=self._goes_on,
                    context_tokens=context_tokens,
                )
                return
            await asyncio.sleep(max(0.0, -client.now_s()))
            await closed_loop(
                client,
                take,
                concurrency=level.concurrency,
                duration_s=stop.duration_s,
                requests=stop.requests,
                warmup=stop.warmup,
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
        if self._failed.total() == self._stop.failures:
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
        """
        until_s = time.monotonic() + RETURNS_WITHIN_S
        while (service := self._target.service) is not None:
            try:
                await asyncio.to_thread(service.check, is_certain=True)
            except PermanentConnectError:
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
