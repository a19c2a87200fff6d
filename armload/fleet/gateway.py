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
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from armload.core.errors import ArmloadError, BusyError, ConnectError, DiskError
from armload.core.progress import Progress
from armload.core.values import Value
from armload.engines.job import SweepPoint
from armload.fleet.archives import archive_chunk, delete_archive, folders_in, pack
from armload.fleet.events import ProgressEvent, Relay, Send
from armload.fleet.files import SentFile, bytes_here, receive
from armload.fleet.gateway_board import GatewayBoard
from armload.fleet.gateway_hosts import GatewayHosts
from armload.fleet.messages import GatewayError, TaskAnswer, TaskOutcome, reply_of
from armload.fleet.operations import BoardOperation, GatewayTask, RunEngine
from armload.runs import store
from armload.runs.folders import run_folders
from armload.runs.selection import RunSelection


class Begun(Value):
    """The points of a sweep that a board has begun, or done, and not delivered."""

    points: tuple[SweepPoint, ...]


class Gateway:
    """The boards of this gateway, and the groups of them.

    Args:
        boards: their names.
        progress: shows what each does.
    """

    def __init__(self, boards: Sequence[str], progress: Progress) -> None:
        self.boards = tuple(boards)
        self.hosts = GatewayHosts(self.boards, progress)
        self._send: Send = lambda _topic, _event: None
        self._progress = progress
        self._posts: dict[str, _BoardPost] = {}
        self._lock = threading.Lock()

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
        return self._post(task.board).begin(task)

    def stop(self, board: str, key: str) -> bool:
        """Stop a task as Ctrl-C does, and say whether it is here; its reply comes as usual."""
        return self._post(board).stop(key)

    def begun(self, board: str, sweep: str) -> str:
        return Begun(points=tuple(self._post(board).begun(sweep))).model_dump_json()

    def forget(self, board: str, key: str, archive: str) -> None:
        """Delete the runs of a task that the command has now."""
        self._post(board).forget(key, archive)

    def have_file(self, file: str) -> int:
        """Return how many bytes of a ``SentFile`` have come."""
        return bytes_here(SentFile.model_validate_json(file))

    def put_chunk(self, file: str, offset: int, chunk: bytes, sha256: str) -> int:
        """Append a chunk to a ``SentFile``; return how many bytes have come."""
        return receive(SentFile.model_validate_json(file), offset, chunk, sha256)

    def archive_chunk(self, name: str, offset: int) -> bytes:
        return archive_chunk(name, offset)

    def _post(self, board: str) -> _BoardPost:
        with self._lock:
            if board not in self._posts:
                self._posts[board] = _BoardPost(board, self._progress, self.tell)
            return self._posts[board]


class _BoardPost:
    """One board or group: what is to be done there, and the thread that does it."""

    def __init__(self, board: str, progress: Progress, tell: Send) -> None:
        self._progress = progress
        self._relay = Relay(tell)
        self._waiting: queue.Queue[tuple[GatewayTask, Future[bytes]]] = queue.Queue()
        self._replies: dict[str, tuple[GatewayTask, Future[bytes]]] = {}
        self._archived: dict[str, Sequence[Path]] = {}
        self._lock = threading.Lock()
        self._board = GatewayBoard(board, self._relay)
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
            if not self._replies[key][1].done():
                self._relay.stopping.add(key)
            return True

    def begun(self, sweep: str) -> list[SweepPoint]:
        with self._lock:
            known = [task.operation for task, _ in self._replies.values()]
        places = [each.place for each in known if isinstance(each, RunEngine) and each.place]
        return [
            *(place for place in places if place.sweep == sweep),
            *self._board.left.points(sweep),
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
            with self._lock:
                self._relay.end(task.key)
                reply.set_result(content)

    def _reply(self, task: GatewayTask) -> bytes:
        first = b""
        try:
            outcome = self._done(task.operation)
            if outcome.has_made and task.store != store.store_id():
                archive = pack(outcome.runs, outcome.loads)
                first = archive_chunk(archive.name, 0)
                outcome = outcome.model_copy(update={"archive": archive})
                self._archived[archive.name] = [*folders_in(archive).values()]
        except Exception as defect:  # noqa: BLE001 - it is the command's to show
            outcome = TaskOutcome(error=_defect(defect))
        if outcome.result is None or not outcome.has_made:
            # It is done again when the command asks for it again.
            with self._lock:
                self._replies.pop(task.key, None)
        return reply_of(outcome, first)

    def _done(self, operation: BoardOperation[Any]) -> TaskOutcome[Any]:
        before = {folder.name for folder in self._runs()}
        outcome: TaskOutcome[Any]
        try:
            self._relay.check()
            outcome = operation.do(self._board)
        except KeyboardInterrupt:
            outcome = TaskOutcome()
        except ArmloadError as failure:
            outcome = TaskOutcome(error=GatewayError.of(failure))
            if isinstance(failure, ConnectError | BusyError):
                self._board.close()
        except Exception as defect:  # noqa: BLE001 - it is the command's to show
            traceback.print_exception(defect)
            self._board.close()
            outcome = TaskOutcome(error=_defect(defect))
        made = [folder.name for folder in self._runs() if folder.name not in before]
        runs = tuple(dict.fromkeys((*filter(self._board.has_run, made), *outcome.runs)))
        for run in runs:
            self._progress.say(f"{self._board.name}: {run}")
        return outcome.model_copy(update={"runs": runs})

    def _runs(self) -> list[Path]:
        return run_folders(RunSelection(boards=[self._board.name]))


def _defect(defect: Exception) -> GatewayError:
    what = " ".join(traceback.format_exception_only(defect)[-1].split())
    if isinstance(defect, OSError):
        return GatewayError.of(DiskError(f"On the gateway: {what}"))
    return GatewayError.of(
        ArmloadError(
            f"Internal error on the gateway: {what}", "Please report it with the gateway's output."
        )
    )


_OFFERED: list[Gateway] = []
"""The gateway of this process, for what Dask calls."""


def offer(gateway: Gateway) -> None:
    """Let Dask's tasks find the gateway of this process."""
    _OFFERED[:] = [gateway]


async def do_task(task: str) -> bytes:
    """Do a ``GatewayTask`` and return its ``TaskOutcome``, with the first chunk of the archive."""
    try:
        begun = _OFFERED[0].begin(GatewayTask.model_validate_json(task))
    except Exception as defect:  # noqa: BLE001 - it is the command's to show
        return reply_of(TaskOutcome(error=_defect(defect)))
    # What is cancelled with the scheduler's connection is the waiting alone.
    return await asyncio.shield(asyncio.wrap_future(begun))


_CALLS: Mapping[str, Callable[..., Any]] = {
    call.__name__: call
    for call in (
        *(Gateway.stop, Gateway.begun, Gateway.forget),
        *(Gateway.have_file, Gateway.put_chunk, Gateway.archive_chunk),
    )
}

_HOST_CALLS: Mapping[str, Callable[..., Any]] = {
    call.__name__: call
    for call in (
        *(GatewayHosts.described, GatewayHosts.transports, GatewayHosts.run, GatewayHosts.write),
        *(GatewayHosts.tunnel, GatewayHosts.dial, GatewayHosts.flow, GatewayHosts.take),
        *(GatewayHosts.feed, GatewayHosts.close),
    )
}


def answer(call: str, *arguments: Any) -> bytes:
    """Call the gateway; return a ``TaskAnswer``: Dask would pickle an error."""
    try:
        offered = _OFFERED[0]
        if call in _HOST_CALLS:
            result = _HOST_CALLS[call](offered.hosts, *arguments)
        else:
            result = _CALLS[call](offered, *arguments)
    except ArmloadError as error:
        return reply_of(TaskAnswer(error=GatewayError.of(error)))
    except Exception as defect:  # noqa: BLE001 - it is the command's to show
        return reply_of(TaskAnswer(error=_defect(defect)))
    return (
        reply_of(TaskAnswer(), result)
        if isinstance(result, bytes)
        else reply_of(TaskAnswer(result=result))
    )
