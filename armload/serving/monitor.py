"""A board's clock and state while it serves, asked over a connection of their own."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any

from armload.analysis.load.records import ClockOffset
from armload.boards.forward import LOOPBACK
from armload.boards.framing import reason
from armload.boards.host import Host
from armload.core.errors import BoardError, ConnectError
from armload.core.shell import render
from armload.core.values import parse_json

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

        Raises:
            ConnectError, BoardError: the board does not answer.
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
        if shown.get("cpu_khz"):
            found["frequency_khz"] = shown["cpu_khz"]
        if shown.get("celsius") is not None:
            found["temperature_celsius"] = shown["celsius"]
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
        done = host.run(render("monitor.sh.j2", {"folder": self._folder}))
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
