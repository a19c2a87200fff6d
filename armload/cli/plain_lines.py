"""Work under way as plain lines, where no line can be redrawn."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

from armload.core.progress import Step
from armload.core.values import format_bytes
from armload.report.layout import Prose

_FIRST_LINE_AFTER_S = 2.0
_PLAIN_LINE_EVERY_S = 5.0
_PLAIN_LINE_AT_LEAST_EVERY_S = 30.0


def _amount(count: float, unit: str) -> str:
    return format_bytes(count) if unit == "B" else f"{count:.0f}"


def done_of(completed: float, total: float | None, unit: str) -> str:
    """Return how far it is, such as ``3/8 runs``."""
    noun = unit.removesuffix("s") if (total or completed) == 1 else unit
    words = "" if unit == "B" else f" {noun}"
    of = f"/{_amount(total, unit)}" if total is not None else ""
    return f"{_amount(completed, unit)}{of}{words}"


def rate(per_s: float, unit: str) -> str:
    """Return a rate in words; of bytes where the unit is ``B``."""
    return f"{format_bytes(per_s)}/s" if unit == "B" else f"{per_s:.3g}/s"


class _LineStep:
    """Says how far it is, ever more rarely, whether or not anything moved meanwhile.

    While work inside it speaks for itself, it speaks only of what has moved.
    """

    def __init__(
        self,
        console: Console,
        label: str,
        total: float | None,
        unit: str,
        is_innermost: Callable[[_LineStep], bool],
    ) -> None:
        self._console = console
        self._is_innermost = is_innermost
        self._shown_completed = 0.0
        self._label = label
        self._total = total
        self._unit = unit
        self._note = ""
        self._completed = 0.0
        self._start = time.monotonic()
        self._begin: tuple[float, float] | None = None
        self._ended = threading.Event()
        self._ticker = threading.Thread(target=self._tick, daemon=True)
        self._ticker.start()

    def update(self, completed: float, *, total: float | None = None, note: str = "") -> None:
        if completed > 0 and self._begin is None:
            self._begin = (time.monotonic(), completed)
        self._completed = completed
        self._total = total if total is not None else self._total
        self._note = note or self._note

    def end(self) -> None:
        self._ended.set()
        self._ticker.join()

    def _tick(self) -> None:
        pause_s = _FIRST_LINE_AFTER_S
        while not self._ended.wait(pause_s):
            pause_s = min(max(_PLAIN_LINE_EVERY_S, 2 * pause_s), _PLAIN_LINE_AT_LEAST_EVERY_S)
            if self._completed != self._shown_completed or self._is_innermost(self):
                self._shown_completed = self._completed
                self._console.print(Prose(self._line()), crop=False)

    def _line(self) -> str:
        parts = [f"{self._label}:"]
        if self._unit and (self._completed or self._total):
            parts.append(done_of(self._completed, self._total, self._unit))
        if self._total and 0 < self._completed < self._total:
            parts.append(f"({', '.join([f'{self._completed / self._total:.0%}', *self._pace()])})")
        if self._note:
            parts.append(self._note)
        if not self._completed:
            parts.append(f"{time.monotonic() - self._start:.0f} s so far")
        return " ".join(parts)

    def _pace(self) -> list[str]:
        """Return rate and time left, of what was done since it began to move."""
        if self._begin is None or self._total is None:
            return []
        began_s, before = self._begin
        spent_s, moved = time.monotonic() - began_s, self._completed - before
        if moved <= 0 or spent_s <= 0:
            return []
        left_s = spent_s * (self._total - self._completed) / moved
        return [rate(moved / spent_s, self._unit), f"{left_s:.0f} s left"]


class Lines:
    """Steps as lines; one that holds others is quiet while they speak."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._open: dict[int, list[_LineStep]] = {}
        """The steps of each thread, an inner one behind that which it is part of."""

    def say(self, text: str) -> None:
        """Print a line between the others."""
        self._console.print(Prose(text), crop=False)

    @contextmanager
    def step(self, label: str, *, total: float | None = None, unit: str = "") -> Iterator[Step]:
        """Show a step until the block ends."""
        start = time.monotonic()
        nested = self._open.setdefault(threading.get_ident(), [])
        step = _LineStep(self._console, label, total, unit, lambda each: each is nested[-1])
        nested.append(step)
        try:
            yield step
        finally:
            step.end()
            nested.remove(step)
        took_s = time.monotonic() - start
        if took_s >= 1:
            self.say(f"{label}: done in {took_s:.0f} s")
