"""The gateways behind a Dask scheduler, as a command uses them.

Calls are functions of the module ``gateway``, by Dask's own tasks: on one worker, and for a board
with the resource that stands for it. A scheduler that is lost is connected to anew; what was called
meanwhile is the caller's to repeat.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from armload import __version__
from armload.core.errors import ArmloadError, ConnectError, UsageError
from armload.core.progress import Progress
from armload.deploy.retry import RETRY_FOR_S
from armload.fleet.board_locks import held
from armload.fleet.gateway_tasks import ProgressEvent
from armload.fleet.offers import GatewayWorker, names_in, not_offered, worker_of
from armload.fleet.scheduler import (
    ANSWER_S,
    SchedulerAddress,
    check_answers,
    need_dask,
    not_dask,
    scheduler_address,
    security_of,
)

if TYPE_CHECKING:
    from distributed import Client, Future

_LOOK_EVERY_S = 1.0
FIRST_OFFER_S = 5.0
"""A worker that is not there by then has not been started."""
_RESULT_S = 120.0
"""For one chunk, over a slow connection."""


class GoneError(ArmloadError):
    """The scheduler, or the worker that was to answer, is gone."""


class Gateways:
    """All gateways of a scheduler. Several threads may use them at once."""

    def __init__(self, address: SchedulerAddress, progress: Progress) -> None:
        self.topic = f"armload-{uuid4().hex}"
        self._address = address
        self._progress = progress
        self._lock = threading.RLock()
        self._heard: dict[str, Callable[[ProgressEvent], None]] = {}
        self._client: Client | None = None

    def close(self) -> None:
        if self._client is not None:
            with contextlib.suppress(Exception):
                self._client.close(timeout=2)
            self._client = None

    def workers(self) -> list[GatewayWorker]:
        """Return those that offer boards now.

        Raises:
            ConnectError: the scheduler stays away.
        """
        while True:
            client = self._connected()
            try:
                known = client.scheduler_info(n_workers=-1)["workers"]
            except Exception:  # noqa: BLE001 - whatever it is, another connection is tried
                self.lost(client)
                continue
            return [worker_of(address, said) for address, said in known.items()]

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
                    raise not_offered(board, members, self._address.url, workers)
                label = f"Waiting for a worker that offers {board}"
                shown = shown or step.enter_context(progress.step(label))
                shown.update(0)
                time.sleep(min(_LOOK_EVERY_S, within_s))

    @contextmanager
    def hearing(self, task: str, heard: Callable[[ProgressEvent], None]) -> Iterator[None]:
        """Have ``heard`` called with a task's events; from another thread."""
        self._heard[task] = heard
        try:
            yield
        finally:
            self._heard.pop(task, None)

    def call(self, worker: str, function: Callable[..., Any], *arguments: object) -> Any:
        """Call a function of the gateway's and wait for its result.

        Raises:
            GoneError: the worker or the scheduler went away.
        """
        ended: queue.Queue[None] = queue.Queue()
        with self.begun(worker, {}, function, *arguments, ended=ended) as call:
            while True:
                with contextlib.suppress(queue.Empty):
                    ended.get(timeout=_LOOK_EVERY_S)
                    return call.result()
                call.check()

    @contextmanager
    def holding(self, boards: Sequence[str], waiting: Callable[[str], None]) -> Iterator[None]:
        """Hold boards against other commands, in their turn.

        Args:
            waiting: called about once a second with the board that another command holds.

        Raises:
            GoneError: the scheduler went away before they were held.
        """
        client = self._connected()
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(held(client, boards, waiting))
            except Exception as error:
                raise self.lost(client) from error
            yield

    @contextmanager
    def begun(
        self,
        worker: str,
        resources: Mapping[str, float],
        function: Callable[..., Any],
        *arguments: object,
        ended: queue.Queue[Any],
    ) -> Iterator[Call]:
        """Call a function of the gateway's; yield what tells its result.

        Args:
            ended: gets a ``None`` when the result is there, or will never be.

        Raises:
            GoneError: the scheduler went away.
        """
        client = self._connected()
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
            future.add_done_callback(lambda _: ended.put(None))
        except Exception as error:
            raise self.lost(client) from error
        try:
            yield Call(self, client, future, worker)
        finally:
            with contextlib.suppress(Exception):
                future.release()

    def check(self, client: Client, worker: str) -> None:
        """Check that a call may still be answered.

        Raises:
            GoneError: it will not.
        """
        if client is not self._client or client.status != "running":
            raise GoneError("The scheduler is gone.")
        if worker not in {each.address for each in self.workers()}:
            raise GoneError("The worker is gone.")

    def lost(self, client: Client) -> GoneError:
        """Give up a client, so that the next call connects anew; return the error to raise."""
        with self._lock:
            if self._client is client:
                client.close(timeout=2)
        return GoneError("The connection to the scheduler was lost.")

    def _connected(self) -> Client:
        with self._lock:
            client = self._client
            if client is not None and client.status == "running":
                return client
            return self._connect_again(client)

    def _connect_again(self, before: Client | None) -> Client:
        if before is None:
            return self._connect()
        self.close()
        deadline, is_said = time.monotonic() + RETRY_FOR_S, False
        while True:
            try:
                return self._connect()
            except ConnectError:
                if time.monotonic() > deadline:
                    raise
                if not is_said:
                    url, is_said = self._address.url, True
                    self._progress.say(f"The scheduler at {url} does not answer. Waiting for it.")
                time.sleep(_LOOK_EVERY_S)

    def _connect(self) -> Client:
        from distributed import Client

        security = security_of(self._address, "client")
        check_answers(self._address)
        try:
            client = Client(
                self._address.url,
                timeout=ANSWER_S,
                security=security,
                set_as_default=False,
                # What boards and gateways say is data.
                deserializers=["msgpack"],
            )
            if client.scheduler_info()["type"] != "Scheduler":
                raise TypeError("it is another part of Dask")
        except Exception as error:
            raise not_dask(self._address, error) from error
        client.subscribe_topic(self.topic, self._dispatch)
        self._client = client
        return client

    def _dispatch(self, event: tuple[float, Any]) -> None:
        told = ProgressEvent.model_validate_json(event[1])
        if heard := self._heard.get(told.task):
            heard(told)


class Call:
    """A call that is under way."""

    def __init__(
        self, gateways: Gateways, client: Client, future: Future[Any], worker: str
    ) -> None:
        self._gateways = gateways
        self._client = client
        self._future = future
        self._worker = worker

    @property
    def is_done(self) -> bool:
        """Whether the result is there, or will never be."""
        return bool(self._future.done())

    def check(self) -> None:
        """Check that it may still be answered; GoneError if not."""
        self._gateways.check(self._client, self._worker)

    def cancel(self) -> None:
        """Withdraw it."""
        with contextlib.suppress(Exception):
            self._future.cancel()

    def result(self) -> Any:
        """Return its result, which is there.

        Raises:
            GoneError: it went with the worker or the scheduler.
            ArmloadError: the function failed.
        """
        from distributed import KilledWorker

        try:
            return self._future.result(timeout=_RESULT_S)
        except Exception as error:
            if isinstance(error, KilledWorker):
                raise GoneError("The worker is gone.") from error
            if self._future.status != "error":
                # Dask may have connected again by itself, and would send no progress any more.
                raise self._gateways.lost(self._client) from error
            what = f"{type(error).__name__}: {error}"
            raise ArmloadError(
                f"The worker at {self._worker} failed: {what}", "Look at the worker's output."
            ) from error


@contextmanager
def gateways_of(scheduler: str, boards: Sequence[str], progress: Progress) -> Iterator[Gateways]:
    """Connect to a scheduler whose gateways offer boards.

    Raises:
        MissingToolError: Dask is not installed.
        UsageError: the address would not be encrypted, or a gateway has another version.
        ConnectError: no scheduler answers, or a board is not offered.
    """
    address = scheduler_address(scheduler)
    need_dask()
    gateways = Gateways(address, progress)
    try:
        for board in boards:
            gateways.of(board, progress, within_s=FIRST_OFFER_S)
        yield gateways
    finally:
        gateways.close()
