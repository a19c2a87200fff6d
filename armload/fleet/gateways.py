"""The gateways behind a Dask scheduler, as a command uses them.

Calls are functions of the module ``gateway``, by Dask's own tasks: on one worker, and for a board
with the resource that stands for it. A scheduler that is lost is connected to anew; what was called
meanwhile is the caller's to repeat.
"""

from __future__ import annotations

import contextlib
import math
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from armload import __version__
from armload.core.errors import ArmloadError, ConnectError, TransferError, UsageError
from armload.core.progress import Progress, ProgressStep
from armload.deploy.retry import RETRY_FOR_S
from armload.fleet import gateway
from armload.fleet.events import ProgressEvent, RelayedProgress
from armload.fleet.messages import TOPIC, TaskAnswer, read_sent, split_reply
from armload.fleet.offers import GatewayWorker, held, names_in, not_offered, workers_of
from armload.fleet.scheduler import (
    SchedulerAddress,
    need_dask,
    not_dask,
    refused,
    scheduler_address,
)

if TYPE_CHECKING:
    from distributed import Client, Future

_LOOK_EVERY_S = 1.0
FIRST_OFFER_S = 5.0
"""A worker that is not there by then has not been started."""
_IDENTITY_S = 30.0

_EVENT_CHARACTERS = 256 << 10
_MOST_EVENTS = 1000
"""That wait to be shown."""


class GoneError(ArmloadError):
    """The scheduler, or the worker that was to answer, is gone."""


class Gateways:
    """All gateways of a scheduler. Several threads may use them at once."""

    def __init__(self, address: SchedulerAddress, progress: Progress) -> None:
        self.topic = f"{TOPIC}{uuid4().hex}"
        self.address = address
        self._progress = progress
        self._lock = threading.RLock()
        self._heard: dict[str, queue.Queue[ProgressEvent | None]] = {}
        self._refusals: list[str] = []
        self._client: Client | None = None

    def close(self) -> None:
        if self._client is not None:
            with contextlib.suppress(Exception):
                self._client.close(timeout=2)
            self._client = None

    def workers(self) -> list[GatewayWorker]:
        """Return those that offer boards now."""
        deadline = time.monotonic() + RETRY_FOR_S
        while True:
            client = self._connected()
            try:
                assert client.scheduler is not None  # noqa: S101 - it is connected
                identity = client.scheduler.identity
                return workers_of(client.sync(identity, n_workers=-1, callback_timeout=_IDENTITY_S))
            except TransferError:
                raise
            except Exception as error:  # whatever it is, another connection is tried
                lost = self.lost(client)
                if not isinstance(lost, GoneError):
                    raise lost from error
                if time.monotonic() > deadline:
                    raise not_dask(self.address, error) from error
                time.sleep(_LOOK_EVERY_S)

    def of(self, board: str, progress: Progress, *, within_s: float = RETRY_FOR_S) -> GatewayWorker:
        """Return a gateway that offers a board, or all members of a group; wait for one.

        Args:
            within_s: how long.

        Raises:
            ConnectError: there is none.
            UsageError: it has another version of armload.
        """
        members = names_in(board)
        deadline, step = time.monotonic() + within_s, contextlib.ExitStack()
        with step:
            shown = None
            while True:
                workers = self.workers()
                offering = [each for each in workers if {*members} <= {*each.boards}]
                for each in offering:
                    if each.version == __version__:
                        return each
                if offering:
                    other = offering[0]
                    raise UsageError(
                        f"{other.name} offers {board} with armload {other.version}; this is "
                        f"armload {__version__}.",
                        "Install the same version on both.",
                    )
                if time.monotonic() > deadline:
                    raise not_offered(board, members, self.address.url, workers)
                label = f"Waiting for a worker that offers {board}"
                shown = shown or step.enter_context(progress.step(label))
                shown.update(0)
                time.sleep(min(_LOOK_EVERY_S, within_s))

    def call(
        self,
        worker: str,
        function: Callable[..., Any],
        *arguments: object,
        within_s: float = math.inf,
    ) -> Any:
        """Call a method of the ``Gateway`` or its hosts, and wait for its result.

        Raises:
            GoneError: the worker or the scheduler went away.
            ConnectError: there was no answer in time.
            ArmloadError: the method failed.
        """
        name = function.__name__
        with self.begun(worker, gateway.answer, name, *arguments) as call:
            head, content = split_reply(call.reply(within_s=within_s))
        answer = read_sent(TaskAnswer, head)
        if answer.error:
            raise answer.error.error
        return content if answer.result is None else answer.result

    @contextmanager
    def holding(self, boards: Sequence[str], progress: Progress) -> Iterator[None]:
        """Hold boards against other commands, in their turn."""
        client = self._connected()
        with contextlib.ExitStack() as until_end:
            with contextlib.ExitStack() as until_held:
                steps: dict[str, ProgressStep] = {}

                def waiting(board: str) -> None:
                    if board not in steps:
                        label = f"Waiting for {board}, which another command uses"
                        steps[board] = until_held.enter_context(progress.step(label))
                    steps[board].update(0)

                try:
                    until_end.enter_context(held(client, boards, waiting))
                except Exception as error:
                    raise self.lost(client) from error
            yield

    @contextmanager
    def begun(
        self,
        worker: str,
        function: Callable[..., Any],
        *arguments: object,
        resources: Mapping[str, float] = {},
        task: str = "",
    ) -> Iterator[Call]:
        """Call a function of the module ``gateway``; yield what tells its result.

        Args:
            task: the key of the one whose events are heard meanwhile.

        Raises:
            GoneError: the scheduler went away.
        """
        heard: queue.Queue[ProgressEvent | None] = queue.Queue()
        client = self._connected()
        if task:
            self._heard[task] = heard
        future = None
        try:
            try:
                future = client.submit(
                    function,
                    *arguments,
                    key=f"{function.__name__}-{uuid4().hex}",
                    workers=[worker],
                    allow_other_workers=False,
                    resources=dict(resources) or None,
                    pure=False,
                )
                future.add_done_callback(lambda _: heard.put(None))
            except Exception as error:
                raise self.lost(client) from error
            yield Call(self, client, future, worker, heard)
        finally:
            self._heard.pop(task, None)
            if future is not None:
                with contextlib.suppress(Exception):
                    future.release()

    def check(self, client: Client, worker: str) -> None:
        """Check that a call may still be answered.

        Raises:
            GoneError: it will not.
            ConnectError: the scheduler is refused.
        """
        if self._refusals:
            raise self.lost(client)
        if client is not self._client or client.status != "running":
            raise GoneError("The scheduler is gone.")
        if worker not in {each.address for each in self.workers()}:
            raise GoneError("The worker is gone.")

    def lost(self, client: Client) -> ArmloadError:
        """Give up a client, so that the next call connects anew; return the error to raise.

        Returns:
            A ``GoneError``, unless a message was refused.
        """
        with self._lock:
            if self._client is client:
                client.close(timeout=2)
        if self._refusals:
            return refused(self.address, self._refusals[0])
        return GoneError("The connection to the scheduler was lost.")

    def _connected(self) -> Client:
        from armload.fleet.data_only import connected

        with self._lock:
            if self._client is not None and self._client.status == "running":
                return self._client
            is_first, is_said = self._client is None, False
            self.close()
            deadline = time.monotonic() + RETRY_FOR_S
            while True:
                try:
                    self._client = connected(self.address, self._refusals)
                except ConnectError:
                    if is_first or self._refusals or time.monotonic() > deadline:
                        raise
                    if not is_said:
                        url, is_said = self.address.url, True
                        self._progress.say(
                            f"The scheduler at {url} does not answer. Waiting for it."
                        )
                    time.sleep(_LOOK_EVERY_S)
                else:
                    self._client.subscribe_topic(self.topic, self._dispatch)
                    return self._client

    def _dispatch(self, event: tuple[float, Any]) -> None:
        content = event[1]
        if not isinstance(content, str) or len(content) > _EVENT_CHARACTERS:
            return
        told = read_sent(ProgressEvent, content)
        heard = self._heard.get(told.task)
        if heard is not None and heard.qsize() < _MOST_EVENTS:
            heard.put(told)


@dataclass(frozen=True)
class Call:
    """A call that is under way."""

    gateways: Gateways
    client: Client
    future: Future[Any]
    worker: str
    heard: queue.Queue[ProgressEvent | None]

    def cancel(self) -> None:
        with contextlib.suppress(Exception):
            self.future.cancel()

    def reply(self, shown: RelayedProgress | None = None, *, within_s: float = math.inf) -> bytes:
        """Wait for its result, and show its events meanwhile.

        Raises:
            GoneError: it went with the worker or the scheduler.
            ConnectError: it did not come in time.
            TransferError: the result is no bytes, or Dask itself reports an error, as a pickle.
        """
        deadline = time.monotonic() + within_s
        while True:
            try:
                event = self.heard.get(timeout=_LOOK_EVERY_S)
            except queue.Empty:
                if self.future.done():
                    return self._result()
                if time.monotonic() > deadline:
                    raise ConnectError(
                        f"The worker at {self.worker} did not answer within {within_s:g} s."
                    ) from None
                if shown:
                    shown.refresh()
                self.gateways.check(self.client, self.worker)
                continue
            if event is None:
                return self._result()
            if shown:
                shown.show(event)

    def _result(self) -> bytes:
        from armload.fleet.data_only import RESULT_S, GatewayReply

        try:
            reply = self.future.result(timeout=RESULT_S)
        except Exception as error:
            if self.future.status != "error":
                # Dask may have connected again by itself, and would send no progress any more.
                raise self.gateways.lost(self.client) from error
            self.gateways.check(self.client, self.worker)
            reply = None
        if isinstance(reply, GatewayReply) and isinstance(reply.content, bytes):
            return reply.content
        raise TransferError(
            f"The worker at {self.worker} sent a pickle or something else than armload's data, "
            "which is never read here.",
            "Look at the worker's output, and check who can use the scheduler.",
        )


@contextmanager
def gateways_of(scheduler: str, boards: Sequence[str], progress: Progress) -> Iterator[Gateways]:
    """Connect to a scheduler whose gateways offer boards."""
    address = scheduler_address(scheduler)
    need_dask()
    gateways = Gateways(address, progress)
    try:
        for board in boards:
            gateways.of(board, progress, within_s=FIRST_OFFER_S)
        yield gateways
    finally:
        gateways.close()
