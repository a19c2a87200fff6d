"""The progress of a board behind a gateway: told in events there, and shown by the command."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Self

from armload.core.progress import Progress, ProgressStep
from armload.core.values import Value

_UPDATE_EVERY_S = 0.2


class ProgressEvent(Value):
    """Something that a command hears of a task while it is done.

    Attributes:
        task: its key.
        say: a line that stays; empty where the event is of a step.
        lines: of output that the command reads as it comes; none where the event is of a step.
        step: number of the step.
        label: with which the step begins; empty once it has begun.
        is_end: the step ends.
    """

    task: str
    say: str = ""
    lines: tuple[str, ...] = ()
    step: int = 0
    label: str = ""
    completed: float = 0
    total: float | None = None
    unit: str = ""
    note: str = ""
    is_end: bool = False


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


Noted = Callable[[Sequence[str]], str]
"""Given lines of output, says in a few words how it stands."""


class RelayedProgress:
    """Shows what a gateway tells of a task, as if it were done here."""

    def __init__(self, progress: Progress, noted: Noted | None) -> None:
        self._progress = progress
        self._noted = noted
        self._note = ""
        self._open: dict[int, tuple[AbstractContextManager[ProgressStep], ProgressStep]] = {}
        self._last: dict[int, ProgressEvent] = {}

    def __enter__(self) -> Self:
        self._begin(ProgressEvent(task="", label="Waiting for the gateway"))
        return self

    def __exit__(self, *_: object) -> None:
        for number in reversed(list(self._open)):
            self._end(number)

    def show(self, event: ProgressEvent) -> None:
        self._end(0)
        if event.say:
            self._progress.say(event.say)
        elif event.lines and self._noted:
            self._note = self._noted(event.lines)
            self.refresh()
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

    def _begin(self, event: ProgressEvent) -> None:
        context = self._progress.step(event.label, total=event.total, unit=event.unit)
        self._open[event.step] = (context, context.__enter__())
        self._last[event.step] = event

    def _update(self, event: ProgressEvent) -> None:
        self._last[event.step] = event
        _, step = self._open[event.step]
        step.update(event.completed, total=event.total, note=event.note or self._note)

    def _end(self, number: int) -> None:
        self._last.pop(number, None)
        if opened := self._open.pop(number, None):
            opened[0].__exit__(None, None, None)
