"""The progress of a board behind a gateway, as events for the command that waits for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from armload.core.progress import ProgressStep
from armload.fleet.gateway_tasks import ProgressEvent

_UPDATE_EVERY_S = 0.2

Send = Callable[[str, ProgressEvent], None]
"""Tells a topic of an event."""


class Relay:
    """The progress of a board, which commands hear of by topics, and by which they stop it."""

    def __init__(self, tell: Send) -> None:
        self.topics: dict[str, str] = {}
        self.stopping: set[str] = set()
        self._tell = tell
        self._key = ""
        self._thread = 0
        self._steps = 0

    def begin(self, key: str) -> None:
        self._key = key
        self._thread = threading.get_ident()

    def end(self, key: str) -> None:
        self._key = ""
        self.stopping.discard(key)
        self.topics.pop(key, None)

    def check(self) -> None:
        """Raise an interruption, once, if the command wants it; helpers may report progress too."""
        if self._key in self.stopping and threading.get_ident() == self._thread:
            self.stopping.discard(self._key)
            raise KeyboardInterrupt

    def say(self, text: str) -> None:
        self.tell(ProgressEvent(task=self._key, say=text))

    def lines(self, lines: Sequence[str]) -> None:
        """Tell of output that the command reads itself."""
        if lines:
            self.tell(ProgressEvent(task=self._key, lines=tuple(lines)))

    @contextmanager
    def step(
        self, label: str, *, total: float | None = None, unit: str = ""
    ) -> Iterator[ProgressStep]:
        self.check()
        self._steps += 1
        step = _RelayedStep(
            self, ProgressEvent(task=self._key, step=self._steps, total=total, unit=unit)
        )
        self.tell(step.event.model_copy(update={"label": label}))
        try:
            yield step
        finally:
            self.tell(step.event.model_copy(update={"is_end": True}))

    def tell(self, event: ProgressEvent) -> None:
        if topic := self.topics.get(event.task):
            self._tell(topic, event)


class _RelayedStep:
    def __init__(self, relay: Relay, event: ProgressEvent) -> None:
        self.event = event
        self._relay = relay
        self._told_s = 0.0

    def update(
        self,
        completed: float,
        *,
        total: float | None = None,
        note: str = "",
        rows: Sequence[tuple[str, str]] = (),
    ) -> None:
        del rows
        self._relay.check()
        known = {"completed": completed, "note": note or self.event.note}
        if total is not None:
            known["total"] = total
        self.event = self.event.model_copy(update=known)
        now_s = time.monotonic()
        if now_s - self._told_s >= _UPDATE_EVERY_S:
            self._told_s = now_s
            self._relay.tell(self.event)
