"""Ctrl-C as a wish to end an answer, and not the program."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Interrupts:
    """Ends the request under way when Ctrl-C is pressed, or the one that begins next.

    An exception that a signal raises can end inside a destructor, which swallows it, or leave an
    event loop half made. Only a second Ctrl-C raises one.
    """

    def __init__(self) -> None:
        self._presses = 0
        self._task: asyncio.Task[Any] | None = None

    @contextmanager
    def heeded(self) -> Iterator[None]:
        """Take SIGINT until the block ends; nothing where it is ignored."""
        before = signal.getsignal(signal.SIGINT)
        if not callable(before):
            yield
            return
        signal.signal(signal.SIGINT, self._press)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def forget(self) -> None:
        """Let what was pressed end nothing that begins from now on."""
        self._presses = 0

    @contextmanager
    def ending_this_task(self) -> Iterator[None]:
        """Cancel the current task when Ctrl-C is pressed within the block, or was before it.

        Raises:
            CancelledError: it was before.
        """
        self._task = asyncio.current_task()
        try:
            # Asked only now, so that no press falls between.
            if self._presses:
                raise asyncio.CancelledError
            yield
        finally:
            self._task = None

    def _press(self, number: int, frame: FrameType | None) -> None:
        self._presses += 1
        if self._presses > 1:
            signal.default_int_handler(number, frame)
        if self._task is not None:
            self._task.get_loop().call_soon_threadsafe(self._task.cancel)
