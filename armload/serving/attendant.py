"""Whoever attends a service: lets it know every few seconds, and hears how it is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import PurePosixPath

from armload.boards.failures import SwitchedOffError
from armload.boards.host import Host
from armload.core.errors import ArmloadError
from armload.deploy.heartbeat import Attention, attend

EVERY_S = 4.0
UNREACHABLE_AFTER_S = 30.0
"""A shorter silence is a dropped connection, which the service survives."""

_FRESH_S = 0.5
_KEPT_LOG_BYTES = 1 << 20


class Attendant:
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
        self._heard: Attention | None = None
        self._heard_s = time.monotonic()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._keep_asking, daemon=True)

    def start(self) -> None:
        """Begin to ask by itself."""
        self._thread.start()

    def ask(self, *, detach: bool = False) -> Attention:
        """Ask now, unless that was done a moment ago.

        While the connection is down for a short time, the last answer is returned.

        Args:
            detach: nobody has to attend it from now on.

        Raises:
            ArmloadError: the board has not answered for ``UNREACHABLE_AFTER_S``, or never.
        """
        with self._asking:
            silent_s = time.monotonic() - self._heard_s
            if self._heard is not None and silent_s < _FRESH_S and not detach:
                return self._heard
            try:
                return self._ask(detach=detach)
            except SwitchedOffError:
                raise
            except ArmloadError:
                if self._heard is None or detach or silent_s > UNREACHABLE_AFTER_S:
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

    def _ask(self, *, detach: bool) -> Attention:
        self._host = self._host or self._beside()
        known_bytes = self._heard.log_bytes if self._heard else 0
        heard = attend(self._host, self._folder, log_from_bytes=known_bytes, detach=detach)
        self._log = (self._log + heard.log)[-_KEPT_LOG_BYTES:]
        self._heard, self._heard_s = heard, time.monotonic()
        return heard

    def _keep_asking(self) -> None:
        while not self._closed.wait(EVERY_S):
            try:
                self.ask()
            except ArmloadError:
                continue  # whoever needs the service hears of it
