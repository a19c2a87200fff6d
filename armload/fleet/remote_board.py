"""A board behind a gateway, as a command runs combinations on it.

The command's journal is the truth: a task whose gateway or scheduler went away is told again, and
the gateway knows by the key whether it has been done.
"""

from __future__ import annotations

import queue
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from typing import Self
from uuid import uuid4

from armload.analysis.run import Run
from armload.bench.board import CONNECTED, BenchBoard, BenchBoards
from armload.bench.combination import Combination, programs_of
from armload.boards.board import load_board
from armload.core.errors import ArmloadError, RunError
from armload.core.progress import Progress, ProgressStep
from armload.engines.completion import Completion
from armload.engines.job import SweepPoint
from armload.fleet import gateway
from armload.fleet.archives import Incoming, archive_chunk
from armload.fleet.gateways import (
    Call,
    Gateways,
    GatewayWorker,
    GoneError,
    gateways_of,
    resource_of,
)
from armload.fleet.orders import Archive, Begun, Event, Outcome, Task, order_of, split_reply
from armload.fleet.sending import Sender
from armload.runs import store
from armload.runs.fetch import judge_fetched
from armload.runs.pipeline import Heard
from armload.runs.request import EngineSource, Request
from armload.runs.session import built
from armload.runs.swept import SweptRuns

_LOOK_EVERY_S = 1.0


@contextmanager
def boards_reached(
    scheduler: str, boards: Sequence[str], progress: Progress
) -> Iterator[BenchBoards]:
    """Return how boards are reached: over connections from here, or through gateways.

    Args:
        scheduler: the address of the gateways' scheduler; empty for connections from here.

    Raises:
        ArmloadError: as for ``gateways_of``.
    """
    if not scheduler:
        yield CONNECTED
        return
    with gateways_of(scheduler, boards, progress) as gateways:
        yield GatewayBoards(gateways, progress)


class GatewayBoards:
    """Boards behind gateways."""

    def __init__(self, gateways: Gateways, progress: Progress) -> None:
        self._gateways = gateways
        self._progress = progress
        self._sender = Sender(gateways)

    def begun(self, sweep: str, boards: Sequence[str]) -> Mapping[SweepPoint, str]:
        found: dict[SweepPoint, str] = {}
        for board in boards:
            with suppress(GoneError):  # the board's own task waits for it
                where = self._gateways.of(board, self._progress)
                reply = self._gateways.call(where.address, gateway.begun_points, board, sweep)
                found |= dict.fromkeys(Begun.model_validate_json(reply).points, board)
        return found

    @contextmanager
    def open(
        self,
        request: Request,
        cells: Sequence[Combination],
        progress: Progress,
        *,
        reference: Run | None,
    ) -> Iterator[BenchBoard]:
        board = RemoteBoard(self._gateways, self._sender, request, cells, progress, reference)
        board.open()
        yield board


class RemoteBoard:
    """A board behind a gateway."""

    def __init__(
        self,
        gateways: Gateways,
        sender: Sender,
        request: Request,
        cells: Sequence[Combination],
        progress: Progress,
        reference: Run | None,
    ) -> None:
        self.name = request.board
        binaries = built(request, programs_of(cells), progress)
        self.engines: Sequence[Completion] = [cell.engine(binaries) for cell in cells]
        self._gateways = gateways
        self._sender = sender
        self._progress = progress
        self._reference = reference
        # Whatever is to be compiled has been compiled here.
        there = request.model_copy(update=dict(EngineSource()) | {"new": False})
        target = load_board(request.board).target
        self._order, self._files = order_of(there, target, cells, binaries)
        self._request = request
        self._here = SweptRuns(request.board)
        self._is_first = True

    def open(self) -> None:
        """Have the board made ready.

        Raises:
            ArmloadError: it cannot be.
        """
        key = f"open-{uuid4().hex}"
        self._do(self._task(key).model_copy(update={"is_opening": True}))

    def run(
        self,
        place: SweepPoint | None = None,
        *,
        plain: Sequence[Run] = (),
        heard: Heard | None = None,
    ) -> Run:
        del heard
        # An earlier command may have been killed before it noted the run in its journal.
        run = self._here.find(place) if place else ""
        if not run:
            task = self._task(self._key(place)).model_copy(update={"place": place})
            self._is_first = False
            run = self._do(task)
        return judge_fetched(run, reference=self._reference, plain=plain)

    def _key(self, place: SweepPoint | None) -> str:
        if place is not None:
            return f"{place.sweep}-{place.cell}-{place.round}"
        return f"single-{uuid4().hex if self._request.new else self._order.id}"

    def _task(self, key: str) -> Task:
        return Task(
            order=self._order,
            key=key,
            topic=self._gateways.topic,
            store=store.store_id(),
            new=self._request.new and self._is_first,
        )

    def _do(self, task: Task) -> str:
        """Have a task done, on whichever gateway offers the board; return the id of its run."""
        while True:
            where = self._gateways.of(self.name, self._progress)
            try:
                self._sender.send(where, self._files, self._progress)
                outcome = self._done(where, task)
            except GoneError as gone:
                self._progress.say(f"{self.name}: {gone.message} Sending the task again.")
                # It may have been begun there, and is to be found then.
                task = task.model_copy(update={"new": False})
                continue
            if outcome.error:
                raise outcome.error.error
            if outcome.is_interrupted:
                raise RunError(f"{self.name}: another command stopped the run.", "")
            return outcome.run

    def _done(self, where: GatewayWorker, task: Task) -> Outcome:
        heard: queue.Queue[Event | None] = queue.Queue()
        calling = self._gateways.begun(
            *(where.address, {resource_of(self.name): 1.0}),
            *(gateway.do_task, task.model_dump_json()),
            ended=heard,
        )
        with (
            self._gateways.hearing(task.key, heard.put),
            calling as call,
            _Shown(self._progress) as shown,
        ):
            try:
                reply = self._reply(call, heard, shown)
            except KeyboardInterrupt:
                self._stop(where, task, call, heard)
                raise
        return self._received(where, task, reply)

    def _reply(self, call: Call, heard: queue.Queue[Event | None], shown: _Shown) -> bytes:
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
        self, where: GatewayWorker, task: Task, call: Call, heard: queue.Queue[Event | None]
    ) -> None:
        """Stop a task as Ctrl-C does, and fetch what it has done."""
        try:
            if not self._gateways.call(where.address, gateway.stop_task, self.name, task.key):
                call.cancel()
                return
            if call.is_done:
                heard.put(None)
            with _Shown(self._progress) as shown:
                self._received(where, task, self._reply(call, heard, shown))
        except ArmloadError as error:  # still an interruption
            self._progress.say(str(error))

    def _received(self, where: GatewayWorker, task: Task, reply: bytes) -> Outcome:
        """Keep what a task has brought, and let the gateway forget it."""
        head, first = split_reply(reply)
        outcome = Outcome.model_validate_json(head)
        if outcome.archive:
            self._fetch(where, outcome.archive, first)
        if outcome.run or outcome.archive:
            archive = outcome.archive.name if outcome.archive else ""
            forgotten = (self.name, task.key, archive)
            with suppress(GoneError):  # it keeps the runs, which are here
                self._gateways.call(where.address, gateway.forget_task, *forgotten)
        return outcome

    def _fetch(self, where: GatewayWorker, archive: Archive, first: bytes) -> None:
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
                chunk = (archive.name, done)
                incoming.append(done, self._gateways.call(where.address, archive_chunk, *chunk))
        incoming.unpack()


class _Shown:
    """Shows what a gateway tells of a task, as if it were done here."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._open: dict[int, tuple[AbstractContextManager[ProgressStep], ProgressStep]] = {}
        self._last: dict[int, Event] = {}

    def __enter__(self) -> Self:
        self._begin(Event(task="", label="Waiting for the gateway"))
        return self

    def __exit__(self, *_: object) -> None:
        for number in reversed(list(self._open)):
            self._end(number)

    def show(self, event: Event) -> None:
        """Show an event."""
        self._end(0)
        if event.say:
            self._progress.say(event.say)
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

    def _begin(self, event: Event) -> None:
        context = self._progress.step(event.label, total=event.total, unit=event.unit)
        self._open[event.step] = (context, context.__enter__())
        self._last[event.step] = event

    def _update(self, event: Event) -> None:
        self._last[event.step] = event
        _, step = self._open[event.step]
        step.update(event.completed, total=event.total, note=event.note)

    def _end(self, number: int) -> None:
        self._last.pop(number, None)
        if opened := self._open.pop(number, None):
            opened[0].__exit__(None, None, None)
