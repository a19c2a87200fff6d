"""A task for a board behind a gateway: told, followed, stopped, and its runs fetched.

The command's journal is the truth: a task whose gateway or scheduler went away is told again, and
the gateway knows by the key whether it has been done.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, cast
from uuid import uuid4

from armload.core.errors import ArmloadError, ConnectError, RunError
from armload.core.progress import Progress
from armload.fleet import gateway
from armload.fleet.archives import Incoming
from armload.fleet.events import Noted, RelayedProgress
from armload.fleet.files import SentFile
from armload.fleet.gateway import Gateway
from armload.fleet.gateways import Call, Gateways, GoneError
from armload.fleet.messages import (
    CHUNK_BYTES,
    Result,
    RunArchive,
    TaskOutcome,
    read_sent,
    split_reply,
)
from armload.fleet.offers import GatewayWorker, names_in, resources_of
from armload.fleet.operations import BoardOperation, GatewayTask
from armload.runs.store import store_id

_LOOK_EVERY_S = 1.0
_OTHER_SENDS_S = 0.2
_ATTEMPTS = 10
"""A task that ends its worker each time is not told for ever."""


class RemoteTasks:
    """Has operations done; several threads may use it at once, each for a board of its own."""

    def __init__(self, gateways: Gateways) -> None:
        self.gateways = gateways
        self._lock = threading.Lock()
        self._locks: dict[tuple[str, SentFile], threading.Lock] = defaultdict(threading.Lock)
        self._sent: set[tuple[str, SentFile]] = set()

    def do(
        self,
        board: str,
        operation: BoardOperation[Result],
        progress: Progress,
        *,
        files: Mapping[SentFile, Path] = {},
        key: str = "",
        noted: Noted | None = None,
    ) -> Result:
        """Have something done, on whichever gateway offers the board; keep the runs it brings.

        Args:
            board: or a group, all of whose members are ours alone meanwhile.
            files: that it needs, and where they lie here.
            key: by which the same is found again where it was begun; empty for what no other
                command may find.
            noted: is given output that this command reads as it comes; says how it stands.

        Raises:
            ArmloadError: it failed, or no gateway offers the board any more.
            KeyboardInterrupt: after it was stopped, and what it has done was fetched.
        """
        task = GatewayTask(
            board=board,
            key=f"{operation.kind}-{key or uuid4().hex}",
            topic=self.gateways.topic,
            store=store_id(),
            operation=cast("Any", operation),
        )
        return _Telling(self, task, operation.outcome(), files, progress, noted).do()

    def send(self, worker: GatewayWorker, file: SentFile, path: Path, progress: Progress) -> None:
        """Send a file that a gateway has not got, from where an interrupted transfer stopped.

        Of several threads that need the same file, one sends it.

        Raises:
            GoneError: the gateway or the scheduler went away; what has come there is kept.
            ArmloadError: the gateway cannot keep the file, or it arrived damaged.
        """
        key = (worker.address, file)
        with self._lock:
            lock = self._locks[key]
        with lock:
            if key not in self._sent:
                self._send(worker, file, path, progress)
                self._sent.add(key)

    def _send(self, worker: GatewayWorker, file: SentFile, path: Path, progress: Progress) -> None:
        told, call = file.model_dump_json(), self.gateways.call
        done: int = call(worker.address, Gateway.have_file, told)
        if done == file.size_bytes:
            return
        label = f"Sending {file.name} to {worker.name}"
        with (
            path.open("rb") as content,
            progress.step(label, total=file.size_bytes, unit="B") as step,
        ):
            while done < file.size_bytes:
                step.update(done)
                content.seek(done)
                chunk = content.read(CHUNK_BYTES)
                sha256 = hashlib.sha256(chunk).hexdigest()
                received = call(worker.address, Gateway.put_chunk, told, done, chunk, sha256)
                if received <= done:
                    time.sleep(_OTHER_SENDS_S)
                done = received
            step.update(done)


@dataclass
class _Telling(Generic[Result]):
    """One task."""

    tasks: RemoteTasks
    task: GatewayTask
    outcome: type[TaskOutcome[Result]]
    files: Mapping[SentFile, Path]
    progress: Progress
    noted: Noted | None

    def do(self) -> Result:
        name = self.task.board
        attempts = 0
        while True:
            where = self.tasks.gateways.of(name, self.progress)
            attempts += 1
            try:
                for file, path in self.files.items():
                    self.tasks.send(where, file, path, self.progress)
                outcome = self._done(where)
            except GoneError as gone:
                if attempts == _ATTEMPTS:
                    raise ConnectError(
                        f"{name}: {gone.message} This happened {attempts} times.",
                        f"Look at the output of the worker on {where.name}, then repeat the "
                        "command: it resumes.",
                    ) from gone
                self.progress.say(f"{name}: {gone.message} Sending the task again.")
                time.sleep(_LOOK_EVERY_S)
                continue
            if outcome.error:
                raise outcome.error.error
            if outcome.result is None:
                raise RunError(f"{name}: another command stopped the run.")
            return outcome.result

    def _done(self, where: GatewayWorker) -> TaskOutcome[Result]:
        gateways, task = self.tasks.gateways, self.task
        boards = names_in(task.board)
        with (
            gateways.holding(boards, self.progress),
            gateways.begun(
                *(where.address, gateway.do_task, task.model_dump_json()),
                resources=resources_of(boards),
                task=task.key,
            ) as call,
            RelayedProgress(self.progress, self.noted) as shown,
        ):
            again = task.operation.told_again()
            self.task = task.model_copy(update={"operation": again})
            try:
                reply = call.reply(shown)
            except KeyboardInterrupt:
                self._stop(where, call)
                raise
        return self._received(where, reply)

    def _stop(self, where: GatewayWorker, call: Call) -> None:
        """Stop a task as Ctrl-C does, and fetch what it has done."""
        board, key = self.task.board, self.task.key
        try:
            if not self.tasks.gateways.call(where.address, Gateway.stop, board, key):
                call.cancel()
                return
            with RelayedProgress(self.progress, self.noted) as shown:
                self._received(where, call.reply(shown))
        except ArmloadError as error:  # still an interruption
            self.progress.say(str(error))

    def _received(self, where: GatewayWorker, reply: bytes) -> TaskOutcome[Result]:
        """Keep what a task has brought, and let the gateway forget it."""
        head, first = split_reply(reply)
        outcome = read_sent(self.outcome, head)
        if outcome.archive:
            self._fetch(where, outcome.archive, first)
        if outcome.has_made:
            archive = outcome.archive.name if outcome.archive else ""
            with suppress(GoneError):  # it keeps the runs, which are here
                self.tasks.gateways.call(
                    *(where.address, Gateway.forget, self.task.board, self.task.key, archive)
                )
        return outcome

    def _fetch(self, where: GatewayWorker, archive: RunArchive, first: bytes) -> None:
        incoming = Incoming(archive)
        incoming.append(0, first)
        total = archive.size_bytes
        with ExitStack() as stack:
            step = None
            while (done := incoming.size_bytes) < total:
                label = f"Fetching {archive.name} from {where.name}"
                step = step or stack.enter_context(self.progress.step(label, total=total, unit="B"))
                step.update(done)
                chunk = self.tasks.gateways.call(
                    *(where.address, Gateway.archive_chunk, archive.name, done)
                )
                if not chunk:
                    break
                incoming.append(done, chunk)
        incoming.unpack()
