"""Files on their way to gateways, in chunks, each once."""

from __future__ import annotations

import hashlib
import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from armload.core.progress import Progress
from armload.fleet import gateway
from armload.fleet.gateway_tasks import CHUNK_BYTES
from armload.fleet.gateways import Gateways
from armload.fleet.offers import GatewayWorker
from armload.fleet.sent_engines import SentFile

_OTHER_SENDS_S = 0.2


class Sender:
    """Sends files in chunks, from where an interrupted transfer stopped.

    Several threads may use it at once: of those that need the same file, one sends it.
    """

    def __init__(self, gateways: Gateways) -> None:
        self._gateways = gateways
        self._lock = threading.Lock()
        self._locks: dict[tuple[str, SentFile], threading.Lock] = defaultdict(threading.Lock)
        self._sent: set[tuple[str, SentFile]] = set()

    def send(
        self, worker: GatewayWorker, files: Mapping[SentFile, Path], progress: Progress
    ) -> None:
        """Send what a gateway has not got.

        Raises:
            GoneError: the gateway or the scheduler went away; what has come there is kept.
            ArmloadError: the gateway cannot keep a file, or it arrived damaged.
        """
        for file, path in files.items():
            key = (worker.address, file)
            with self._lock:
                lock = self._locks[key]
            with lock:
                if key not in self._sent:
                    self._send(worker, file, path, progress)
                    self._sent.add(key)

    def _send(self, worker: GatewayWorker, file: SentFile, path: Path, progress: Progress) -> None:
        told = file.model_dump_json()
        done: int = self._gateways.call(worker.address, gateway.have_file, told)
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
                received: int = self._gateways.call(
                    worker.address, gateway.put_chunk, told, done, chunk, sha256
                )
                if received <= done:
                    time.sleep(_OTHER_SENDS_S)
                done = received
            step.update(done)
