"""What a gateway does with its boards, each once and one thing at a time.

What Dask calls here takes and returns data alone. A task runs in its board's own thread, so that it
goes on when the scheduler is lost, and is found again by its key.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import shutil
import threading
import traceback
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from armload.boards.board import load_board
from armload.build.binary import Binary
from armload.core.errors import ArmloadError, BusyError, ConnectError, UsageError
from armload.core.progress import Progress
from armload.core.workspace import runs_folder
from armload.engines.completion import PROGRAM
from armload.engines.job import SweepPoint
from armload.engines.server import SERVER, Serving
from armload.fleet.archives import archive_chunk, delete_archive, folders_in, pack
from armload.fleet.orders import (
    Begun,
    BoardOrder,
    GatewayError,
    GatewayTask,
    ProgressEvent,
    Received,
    TaskOutcome,
    reply_of,
)
from armload.fleet.received import bytes_here, receive
from armload.fleet.received_engines import received_engine, received_forecast, received_load
from armload.fleet.relay import Relay, Send
from armload.fleet.sent_engines import SentFile, SentForecast, SentLoad
from armload.runs import store
from armload.runs.assemble import read_job
from armload.runs.fetch import pull
from armload.runs.placing import put_there
from armload.runs.predicting import predict_there
from armload.runs.reach import CONNECTED, ConnectedBoard
from armload.runs.selection import RunSelection
from armload.runs.session import Session, session
from armload.runs.swept import SweptRuns
from armload.tuning.serving_load import load_there


class Gateway:
    """The boards of this gateway.

    Args:
        boards: their names.
        progress: shows what each does.
    """

    def __init__(self, boards: Sequence[str], progress: Progress) -> None:
        self.boards = tuple(boards)
        self._send: Send = lambda _topic, _event: None
        self._posts = {board: _BoardPost(board, progress, self.tell) for board in boards}

    def connected(self, send: Send) -> None:
        """Note how events are sent from now on."""
        self._send = send

    def tell(self, topic: str, event: ProgressEvent) -> None:
        """Send an event, if anybody can hear it."""
        # A connection that has just dropped takes nothing any more.
        with contextlib.suppress(Exception):
            self._send(topic, event)

    def begin(self, task: GatewayTask) -> Future[bytes]:
        """Begin a task, or find it where it has been begun; return its reply to come."""
        return self._posts[task.board].begin(task)

    def stop(self, board: str, key: str) -> bool:
        """Stop a task as Ctrl-C does, and say whether it is here; its reply comes as usual."""
        return self._posts[board].stop(key)

    def begun(self, board: str, sweep: str) -> list[SweepPoint]:
        """Return the points of a sweep that a board has begun or done, and not delivered."""
        return self._posts[board].begun(sweep)

    def forget(self, board: str, key: str, archive: str) -> None:
        """Delete the runs of a task that the command has now."""
        self._posts[board].forget(key, archive)


class _BoardPost:
    """One board: what is to be done there, and the thread that does it."""

    def __init__(self, board: str, progress: Progress, tell: Send) -> None:
        self._board = board
        self._progress = progress
        self._relay = Relay(tell)
        self._waiting: queue.Queue[tuple[GatewayTask, Future[bytes]]] = queue.Queue()
        self._replies: dict[str, tuple[GatewayTask, Future[bytes]]] = {}
        self._archived: dict[str, Sequence[Path]] = {}
        self._lock = threading.Lock()
        self._open = ExitStack()
        self._opened: tuple[BoardOrder, Session] | None = None
        self._fingerprints: set[str] = set()
        self._left = SweptRuns(board)
        threading.Thread(target=self._work, daemon=True).start()

    def begin(self, task: GatewayTask) -> Future[bytes]:
        with self._lock:
            self._relay.topics[task.key] = task.topic
            if task.key not in self._replies:
                self._replies[task.key] = (task, Future())
                self._waiting.put(self._replies[task.key])
            return self._replies[task.key][1]

    def stop(self, key: str) -> bool:
        with self._lock:
            if key not in self._replies:
                return False
            self._relay.stopping.add(key)
            return True

    def begun(self, sweep: str) -> list[SweepPoint]:
        with self._lock:
            known = [task.place for task, _ in self._replies.values() if task.place]
        return [
            *(place for place in known if place.sweep == sweep),
            *self._left.points(sweep),
        ]

    def forget(self, key: str, archive: str) -> None:
        with self._lock:
            self._replies.pop(key, None)
            folders = self._archived.pop(archive, ())
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
        if archive:
            delete_archive(archive)

    def _work(self) -> None:
        while True:
            task, reply = self._waiting.get()
            self._relay.begin(task.key)
            content = self._reply(task)
            self._relay.end(task.key)
            reply.set_result(content)

    def _reply(self, task: GatewayTask) -> bytes:
        first = b""
        try:
            outcome = self._done(task)
            if (outcome.runs or outcome.load) and task.store != store.store_id():
                archive = pack(outcome.runs, [outcome.load] if outcome.load else [])
                first = archive_chunk(archive.name, 0)
                outcome = outcome.model_copy(update={"archive": archive})
                self._archived[archive.name] = [*folders_in(archive).values()]
        except Exception as defect:  # noqa: BLE001 - it is the command's to show
            outcome = TaskOutcome(error=_defect(defect))
        if not outcome.run and not outcome.load:
            # It is tried again when the command asks for it again.
            with self._lock:
                self._replies.pop(task.key, None)
        return reply_of(outcome, first)

    def _done(self, task: GatewayTask) -> TaskOutcome:
        before = {folder.name for folder in self._runs()}
        outcome = TaskOutcome()
        try:
            self._relay.check()
            outcome = self._did(task)
        except KeyboardInterrupt:
            outcome = TaskOutcome(is_interrupted=True)
        except ArmloadError as failure:
            outcome = TaskOutcome(error=GatewayError.of(failure))
            if isinstance(failure, ConnectError | BusyError):
                self._close()
        except Exception as defect:  # noqa: BLE001 - it is the command's to show
            traceback.print_exception(defect)
            self._close()
            outcome = TaskOutcome(error=_defect(defect))
        made = [folder.name for folder in self._runs() if folder.name not in before]
        runs = tuple(dict.fromkeys((*filter(self._is_of_order, made), *outcome.runs)))
        for run in runs:
            self._progress.say(f"{self._board}: {run}")
        return outcome.model_copy(update={"runs": runs})

    def _did(self, task: GatewayTask) -> TaskOutcome:
        if task.work == "pull":
            pulled = pull(load_board(self._board), self._relay, known=task.known)
            lost = {run: GatewayError.of(error) for run, error in pulled.lost.items()}
            return TaskOutcome(runs=tuple(run.id for run in pulled.runs), lost=lost)
        order, sent = task.order, task.engine
        assert order is not None  # noqa: S101 - all other work has one
        if task.work == "open":
            self._close()  # the board may have changed since an earlier command
            return TaskOutcome(found=self._ready(order).found)
        assert sent is not None  # noqa: S101 - all other work has one
        if task.place is not None and (left := self._left.find(task.place, task.fingerprint)):
            return TaskOutcome(run=left, runs=(left,))
        if isinstance(sent, SentForecast):
            model, header, binary = received_forecast(sent)
            where = self._with(order, {PROGRAM: binary})
            found = predict_there(where, model, header, sent.plan, self._relay, hits=sent.hits)
            return TaskOutcome(prediction=found)
        if isinstance(sent, SentLoad):
            model, one, binary = received_load(sent)
            where = self._with(order, {SERVER: binary})
            server = Serving(one.plan, binary, model, api_key="")
            self._fingerprints.add(server.fingerprint)
            kept = load_there(where, model, one, self._relay)
            run = kept.load.run
            return TaskOutcome(load=kept.load.id, runs=(run,) if run else ())
        engine = received_engine(sent, self._relay)
        if task.work == "deploy":
            self._check(order)
            with session(order.request, (), self._relay) as opened:
                where = replace(opened, binaries={PROGRAM: engine.binary})
                deployed = put_there(where, engine.model, self._relay, verify=task.verify)
            return TaskOutcome(deployed=deployed)
        board = ConnectedBoard(self._with(order, {engine.name: engine.binary}), self._relay)
        self._fingerprints.add(engine.fingerprint)
        run = board.run(engine, new=task.new, place=task.place, warns=task.warns).id
        return TaskOutcome(run=run, runs=(run,))

    def _runs(self) -> list[Path]:
        return store.run_folders(RunSelection(boards=[self._board]))

    def _is_of_order(self, run: str) -> bool:
        # Somebody on the gateway may use the board, too.
        with contextlib.suppress(ArmloadError):
            return read_job(runs_folder() / run).fingerprint in self._fingerprints
        return False

    def _ready(self, order: BoardOrder) -> Session:
        if self._opened is None or self._opened[0] != order:
            self._close()
            self._check(order)
            opened = CONNECTED.open(
                *(order.request, (), self._relay),
                settings=order.settings,
                answers_within_s=order.answers_within_s,
            )
            self._fingerprints = set()
            self._opened = (order, self._open.enter_context(opened).where)
        return self._opened[1]

    def _with(self, order: BoardOrder, binaries: Mapping[str, Binary]) -> Session:
        return replace(self._ready(order), binaries=binaries)

    def _check(self, order: BoardOrder) -> None:
        board = load_board(self._board)
        if board.target != order.target:
            raise UsageError(
                f"{board.name}: the gateway's file has target {board.target}, the command's has "
                f"{order.target}.",
                "Use the same board files on both.",
            )

    def _close(self) -> None:
        self._opened = None
        with contextlib.suppress(ArmloadError):
            self._open.close()


def _defect(defect: Exception) -> GatewayError:
    what = " ".join(traceback.format_exception_only(defect)[-1].split())
    if isinstance(defect, OSError):
        return GatewayError(kind="disk", message=f"On the gateway: {what}", remedy="")
    return GatewayError(
        kind="fault",
        message=f"Internal error on the gateway: {what}",
        remedy="Please report it with the gateway's output.",
    )


_OFFERED: list[Gateway] = []
"""The gateway of this process, for what Dask calls."""


def offer(gateway: Gateway) -> None:
    """Let Dask's tasks find the gateway of this process."""
    _OFFERED[:] = [gateway]


async def do_task(task: str) -> bytes:
    """Do a ``GatewayTask`` and return its ``TaskOutcome``, with the first chunk of the archive."""
    # What is cancelled with the scheduler's connection is the waiting alone.
    return await asyncio.shield(
        asyncio.wrap_future(_OFFERED[0].begin(GatewayTask.model_validate_json(task)))
    )


def stop_task(board: str, key: str) -> bool:
    """Stop a task, and say whether it has been begun."""
    return _OFFERED[0].stop(board, key)


def begun_points(board: str, sweep: str) -> str:
    """Return the ``Begun`` points of a sweep."""
    return Begun(points=tuple(_OFFERED[0].begun(board, sweep))).model_dump_json()


def forget_task(board: str, key: str, archive: str) -> None:
    """Delete the runs of a task, which the command has now."""
    _OFFERED[0].forget(board, key, archive)


def have_file(file: str) -> int:
    """Return how many bytes of a ``SentFile`` have come."""
    return bytes_here(SentFile.model_validate_json(file))


def put_chunk(file: str, offset: int, chunk: bytes, sha256: str) -> bytes:
    """Append a chunk to a ``SentFile``; return what has come as ``Received``."""
    try:
        size_bytes = receive(SentFile.model_validate_json(file), offset, chunk, sha256)
        return reply_of(Received(size_bytes=size_bytes))
    except ArmloadError as error:
        return reply_of(Received(error=GatewayError.of(error)))
    except OSError as error:
        return reply_of(Received(error=_defect(error)))
