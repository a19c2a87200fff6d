"""A task for a board behind a gateway: told, followed, stopped, and its runs fetched.

The command's journal is the truth: a task whose gateway or scheduler went away is told again, and
the gateway knows by the key whether it has been done.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Generic, Self
from uuid import uuid4

from armload.core.errors import ArmloadError, ConnectError, RunError
from armload.core.progress import Progress, ProgressStep
from armload.fleet import gateway
from armload.fleet.archives import Incoming, archive_chunk
from armload.fleet.gateway_tasks import (
    GatewayTask,
    ProgressEvent,
    Result,
    RunArchive,
    TaskOutcome,
    Work,
    read_sent,
    split_reply,
)
from armload.fleet.gateways import Call, Gateways, GoneError
from armload.fleet.offers import GatewayWorker, names_in, resources_of
from armload.fleet.sending import Sender
from armload.fleet.sent_engines import SentFile
from armload.runs.store import store_id

_LOOK_EVERY_S = 1.0
_ATTEMPTS = 10
"""A task that ends its worker each time is not told for ever."""

Noted = Callable[[Sequence[str]], str]
"""Given lines of output, says in a few words how it stands."""


class RemoteTasks:
    """Has tasks done; several threads may use it at once, each for a board of its own."""

    def __init__(self, gateways: Gateways) -> None:
        self._gateways = gateways
        self._sender = Sender(gateways)

    def do(
        self,
        board: str,
        work: Work,
        files: Mapping[SentFile, Path],
        progress: Progress,
        outcome: type[TaskOutcome[Result]],
        *,
        key: str = "",
        noted: Noted | None = None,
    ) -> Result:
        """Have work done, on whichever gateway offers the board; keep the runs that it brings.

        Args:
            board: or a group, all of whose members are ours alone meanwhile.
            files: that it needs, and where they lie here.
            outcome: with the result of such work, which is returned.
            key: by which the same work is found again where it was begun; empty for work that no
                other command may find.
            noted: is given output that this command reads as it comes; says how it stands.

        Raises:
            ArmloadError: it failed, or no gateway offers the board any more.
            KeyboardInterrupt: after it was stopped, and what it has done was fetched.
        """
        task = GatewayTask(
            board=board,
            key=f"{work.kind}-{key or uuid4().hex}",
            topic=self._gateways.topic,
            store=store_id(),
            work=work,
        )
        telling = _Telling(self._gateways, self._sender, task, files, progress, outcome, noted)
        return telling.do()


class _Telling(Generic[Result]):
    """One task."""

    def __init__(
        self,
        gateways: Gateways,
        sender: Sender,
        task: GatewayTask,
        files: Mapping[SentFile, Path],
        progress: Progress,
        outcome: type[TaskOutcome[Result]],
        noted: Noted | None,
    ) -> None:
        self._gateways = gateways
        self._sender = sender
        self._task = task
        self._files = files
        self._progress = progress
        self._outcome = outcome
        self._noted = noted

    def do(self) -> Result:
        name = self._task.board
        attempts = 0
        while True:
            where = self._gateways.of(name, self._progress)
            attempts += 1
            try:
                self._sender.send(where, self._files, self._progress)
                outcome = self._done(where)
            except GoneError as gone:
                if attempts == _ATTEMPTS:
                    raise ConnectError(
                        f"{name}: {gone.message} This happened {attempts} times.",
                        f"Look at the output of the worker on {where.name}, then repeat the "
                        "command: it resumes.",
                    ) from gone
                self._progress.say(f"{name}: {gone.message} Sending the task again.")
                time.sleep(_LOOK_EVERY_S)
                continue
            if outcome.error:
                raise outcome.error.error
            if outcome.result is None:
                raise RunError(f"{name}: another command stopped the run.")
            return outcome.result

    def _done(self, where: GatewayWorker) -> TaskOutcome[Result]:
        task = self._task
        heard: queue.Queue[ProgressEvent | None] = queue.Queue()
        boards = names_in(task.board)
        calling = self._gateways.begun(
            *(where.address, resources_of(boards)),
            *(gateway.do_task, task.model_dump_json()),
            ended=heard,
        )
        with (
            self._held(boards),
            self._gateways.hearing(task.key, heard),
            calling as call,
            _Shown(self._progress, self._noted) as shown,
        ):
            self._task = task.told_again()
            try:
                reply = self._reply(call, heard, shown)
            except KeyboardInterrupt:
                self._stop(where, call, heard)
                raise
        return self._received(where, reply)

    @contextmanager
    def _held(self, boards: Sequence[str]) -> Iterator[None]:
        with ExitStack() as until_held:
            steps: dict[str, ProgressStep] = {}

            def waiting(board: str) -> None:
                if board not in steps:
                    label = f"Waiting for {board}, which another command uses"
                    steps[board] = until_held.enter_context(self._progress.step(label))
                steps[board].update(0)

            with self._gateways.holding(boards, waiting):
                until_held.close()
                yield

    def _reply(self, call: Call, heard: queue.Queue[ProgressEvent | None], shown: _Shown) -> bytes:
        while True:
            try:
                event = heard.get(timeout=_LOOK_EVERY_S)
            except queue.Empty:
                shown.refresh()
                call.check()
                continue
            if event is None:
                reply: bytes = call.result()
                return reply
            shown.show(event)

    def _stop(
        self, where: GatewayWorker, call: Call, heard: queue.Queue[ProgressEvent | None]
    ) -> None:
        """Stop a task as Ctrl-C does, and fetch what it has done."""
        try:
            if not self._gateways.call(
                where.address, gateway.stop_task, self._task.board, self._task.key
            ):
                call.cancel()
                return
            if call.is_done:
                heard.put(None)
            with _Shown(self._progress, self._noted) as shown:
                self._received(where, self._reply(call, heard, shown))
        except ArmloadError as error:  # still an interruption
            self._progress.say(str(error))

    def _received(self, where: GatewayWorker, reply: bytes) -> TaskOutcome[Result]:
        """Keep what a task has brought, and let the gateway forget it."""
        head, first = split_reply(reply)
        outcome = read_sent(self._outcome, head)
        if outcome.archive:
            self._fetch(where, outcome.archive, first)
        if outcome.runs or outcome.loads:
            archive = outcome.archive.name if outcome.archive else ""
            forgotten = (self._task.board, self._task.key, archive)
            with suppress(GoneError):  # it keeps the runs, which are here
                self._gateways.call(where.address, gateway.forget_task, *forgotten)
        return outcome

    def _fetch(self, where: GatewayWorker, archive: RunArchive, first: bytes) -> None:
        incoming = Incoming(archive)
        incoming.append(0, first)
        total = archive.size_bytes
        with ExitStack() as stack:
            step = None
            while (done := incoming.size_bytes) < total:
                label = f"Fetching {archive.name} from {where.name}"
                step = step or stack.enter_context(
                    self._progress.step(label, total=total, unit="B")
                )
                step.update(done)
                chunk = self._gateways.call(where.address, archive_chunk, archive.name, done)
                if not chunk:
                    break
                incoming.append(done, chunk)
        incoming.unpack()


class _Shown:
    """Shows what a gateway tells of a task, as if it were done here."""

    def __init__(self, progress: Progress, noted: Noted | None) -> None:
        self._progress = progress
        self._noted = noted
        self._note = ""
        self._open: dict[int, tuple[AbstractContextManager[ProgressStep], ProgressStep]] = {}
        self._last: dict[int, ProgressEvent] = {}

    def __enter__(self) -> Self:
        self._begin(ProgressEvent(task="", label="Waiting for the gateway"))
        return self

    def __exit__(self, *_: object) -> None:
        for number in reversed(list(self._open)):
            self._end(number)

    def show(self, event: ProgressEvent) -> None:
        self._end(0)
        if event.say:
            self._progress.say(event.say)
        elif event.lines and self._noted:
            self._note = self._noted(event.lines)
            self.refresh()
        elif event.label:
            self._begin(event)
        elif event.step in self._open:
            self._update(event)
            if event.is_end:
                self._end(event.step)

    def refresh(self) -> None:
        """Show again what is known, by which an interruption is noticed."""
        for event in list(self._last.values()):
            self._update(event)

    def _begin(self, event: ProgressEvent) -> None:
        context = self._progress.step(event.label, total=event.total, unit=event.unit)
        self._open[event.step] = (context, context.__enter__())
        self._last[event.step] = event

    def _update(self, event: ProgressEvent) -> None:
        self._last[event.step] = event
        _, step = self._open[event.step]
        step.update(event.completed, total=event.total, note=event.note or self._note)

    def _end(self, number: int) -> None:
        self._last.pop(number, None)
        if opened := self._open.pop(number, None):
            opened[0].__exit__(None, None, None)
