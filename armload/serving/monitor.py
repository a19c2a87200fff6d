"""A board while it serves: its clock and state, over a connection of its own, and its heartbeat."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any

from armload.analysis.load.records import ClockOffset
from armload.boards.failures import PoweredOffError
from armload.boards.forward import LOOPBACK
from armload.boards.framing import reason
from armload.boards.host import Host
from armload.core.errors import ArmloadError, BoardError, ConnectError
from armload.core.shell import render
from armload.core.values import parse_json
from armload.deploy.heartbeat import ServiceState, heartbeat
from armload.engines.trace import Sensed

EVERY_S = 4.0
UNREACHABLE_AFTER_S = 30.0
"""A shorter silence is a dropped connection, which the service survives."""

RETURNS_WITHIN_S = 180.0
"""After a longer silence, a board that restarted is waited for: it knows why the service ended."""

_FRESH_S = 0.5
_KEPT_LOG_BYTES = 1 << 20


class Heartbeat:
    """Asks for a service until it is closed, over a connection of its own.

    Args:
        beside: opens a connection to the board.
        folder: of the service's run there.
    """

    def __init__(self, beside: Callable[[], Host], folder: PurePosixPath) -> None:
        self._beside = beside
        self._folder = folder
        self._host: Host | None = None
        self._asking = threading.Lock()
        self._log = b""
        self._heard: ServiceState | None = None
        self._heard_s = time.monotonic()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._keep_asking, daemon=True)

    def start(self) -> None:
        """Begin to ask by itself."""
        self._thread.start()

    def ask(self, *, detach: bool = False, is_certain: bool = False) -> ServiceState:
        """Ask now, unless that was done a moment ago.

        While the connection is down for a short time, the last answer is returned.

        Args:
            detach: it needs no heartbeat from now on.
            is_certain: the board must answer now.

        Raises:
            ArmloadError: the board has not answered for ``UNREACHABLE_AFTER_S``, or never.
        """
        with self._asking:
            silent_s = time.monotonic() - self._heard_s
            now = detach or is_certain
            if self._heard is not None and silent_s < _FRESH_S and not now:
                return self._heard
            try:
                return self._ask(detach=detach)
            except PoweredOffError:
                raise
            except ArmloadError:
                if self._heard is None or now or silent_s > UNREACHABLE_AFTER_S:
                    raise
                return self._heard

    def new_log(self) -> str:
        """Return the lines of the server's log that have come since the last call."""
        with self._asking:
            whole, newline, self._log = self._log.rpartition(b"\n")
        return (whole + newline).decode("utf-8", "replace")

    def close(self) -> None:
        """Stop asking."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._host is not None:
            self._host.close()

    def _ask(self, *, detach: bool) -> ServiceState:
        self._host = self._host or self._beside()
        known_bytes = self._heard.log_bytes if self._heard else 0
        heard = heartbeat(self._host, self._folder, log_from_bytes=known_bytes, detach=detach)
        self._log = (self._log + heard.log)[-_KEPT_LOG_BYTES:]
        self._heard, self._heard_s = heard, time.monotonic()
        return heard

    def _keep_asking(self) -> None:
        while not self._closed.wait(EVERY_S):
            try:
                self.ask()
            except ArmloadError:
                continue  # whoever needs the service hears of it


EXCHANGES = 25
_ANSWER_WITHIN_S = 10.0


class Monitor:
    """The program ``monitor`` on a board; it is started when it is needed, and again after a drop.

    Args:
        beside: opens a connection to the board.
        folder: of the service's run there.
    """

    def __init__(self, beside: Callable[[], Host], folder: PurePosixPath) -> None:
        self._beside = beside
        self._folder = folder
        self._using = threading.Lock()
        self._open = contextlib.ExitStack()
        self._line: socket.socket | None = None
        self._rest = b""

    def clock(self, boot_id: str) -> ClockOffset:
        """Compare the board's ``CLOCK_MONOTONIC`` with ours, by the quickest of some exchanges.

        The board has read its clock between our question and its answer: half of that time is
        the error, whatever way the two took (Cristian 1989).

        Args:
            boot_id: of the board's boot, whose clock it is.
        """
        best: tuple[float, float] | None = None
        for _ in range(EXCHANGES):
            asked_s, shown, answered_s = self._ask(b"c")
            error_s = (answered_s - asked_s) / 2
            if best is None or error_s < best[1]:
                best = shown["at_ns"] / 1e9 - (asked_s + answered_s) / 2, error_s
        if best is None:
            raise AssertionError("EXCHANGES is at least 1")
        return ClockOffset(board_minus_client_s=best[0], error_s=best[1], boot_id=boot_id)

    def sample(self) -> dict[str, Any]:
        """Return what the board shows now; what it does not show is left out.

        Raises:
            ConnectError, BoardError: the board does not answer.
        """
        _, shown, _ = self._ask(b"s")
        found: dict[str, Any] = {"at_s": shown["at_ns"] / 1e9}
        if "memory_available_bytes" in shown:
            found["memory_available_bytes"] = shown["memory_available_bytes"]
        try:
            known = {key: shown[key] for key in Sensed.model_fields if key in shown}
            found.update(Sensed.model_validate(known).model_dump(exclude_defaults=True))
        except ValueError as error:
            raise BoardError(f"The board's monitor gave no valid answer: {error}.") from error
        return found

    def close(self) -> None:
        """End the connection; the program ends by itself."""
        with self._using:
            self._hang_up()

    def _ask(self, question: bytes) -> tuple[float, dict[str, Any], float]:
        with self._using:
            try:
                return self._exchanged(question)
            except OSError:  # the forward dropped the line, with its connection to the board
                self._hang_up()
            try:
                return self._exchanged(question)
            except OSError as error:
                self._hang_up()
                raise ConnectError(f"The board's monitor does not answer: {error}.") from error

    def _exchanged(self, question: bytes) -> tuple[float, dict[str, Any], float]:
        line = self._line or self._connected()
        asked_s = time.monotonic()
        line.sendall(question)
        while b"\n" not in self._rest:
            data = line.recv(1 << 16)
            if not data:
                raise ConnectionResetError("it has hung up")
            self._rest += data
        answered_s = time.monotonic()
        answer, _, self._rest = self._rest.partition(b"\n")
        try:
            return asked_s, dict(parse_json(answer)), answered_s
        except (ValueError, TypeError) as error:
            raise BoardError(f"The board's monitor gave no valid answer: {error}.") from error

    def _connected(self) -> socket.socket:
        host = self._open.enter_context(contextlib.closing(self._beside()))
        done = host.run(render("run/monitor.sh.j2", {"folder": self._folder}))
        if not done.text.isdecimal():
            raise BoardError(f"{host.name}: no monitor: {done.text or reason(done.stderr)}.")
        forward = self._open.enter_context(host.forwarded(int(done.text)))
        self._line = self._open.enter_context(
            socket.create_connection((LOOPBACK, forward.port), timeout=_ANSWER_WITHIN_S)
        )
        self._line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._line

    def _hang_up(self) -> None:
        self._line, self._rest = None, b""
        self._open.close()
