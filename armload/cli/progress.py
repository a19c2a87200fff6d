"""Work under way: as bars on a terminal that can redraw a line, as plain lines elsewhere."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TaskID
from rich.table import Column
from rich.text import Text

from armload.core.progress import ProgressStep
from armload.core.values import format_bytes, visible
from armload.report.layout import Prose

_FIRST_LINE_AFTER_S = 2.0
_PLAIN_LINE_EVERY_S = 5.0
_PLAIN_LINE_AT_LEAST_EVERY_S = 10.0


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
    """Says how far it is, or how long it has taken if nothing moved meanwhile.

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

    def update(
        self,
        completed: float,
        *,
        total: float | None = None,
        note: str = "",
        rows: Sequence[tuple[str, str]] = (),
    ) -> None:
        del rows
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
            has_moved = self._completed != self._shown_completed
            if has_moved or self._is_innermost(self):
                self._shown_completed = self._completed
                self._console.print(Prose(self._line(has_moved=has_moved)), crop=False)

    def _line(self, *, has_moved: bool = True) -> str:
        amount = ""
        if self._unit and (self._completed or self._total):
            amount = done_of(self._completed, self._total, self._unit)
        if self._total and 0 < self._completed < self._total:
            pace = ", ".join([f"{self._completed / self._total:.0%}", *self._pace()])
            amount = f"{amount} ({pace})" if amount else pace
        took_s = time.monotonic() - self._start
        so_far = "" if has_moved and self._completed else f"{took_s:.0f} s so far"
        return f"{self._label}: {'; '.join(filter(None, (amount, self._note, so_far)))}"

    def _pace(self) -> list[str]:
        """Return rate and time left, of what was done since it began to move."""
        if self._begin is None or self._total is None:
            return []
        began_s, before = self._begin
        spent_s, moved = time.monotonic() - began_s, self._completed - before
        if moved <= 0 or spent_s <= 0:
            return []
        left_s = spent_s * (self._total - self._completed) / moved
        pace = [rate(moved / spent_s, self._unit)] if self._unit else []
        return [*pace, f"{left_s:.0f} s left"]


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
    def step(
        self, label: str, *, total: float | None = None, unit: str = ""
    ) -> Iterator[ProgressStep]:
        """Show a step until the block ends."""
        start = time.monotonic()
        nested = self._open.setdefault(threading.get_ident(), [])
        step = _LineStep(self._console, label, total, unit, lambda each: nested[-1:] == [each])
        nested.append(step)
        try:
            yield step
        finally:
            step.end()
            nested.remove(step)
        took_s = time.monotonic() - start
        if took_s >= 1:
            self.say(f"{label}: done in {took_s:.0f} s")


_WIDE, _NARROW = 100, 60
_RATE_OVER_S = 600.0
"""A run of a sweep, or a token of a model that does not fit the memory, may take minutes."""


class _Label(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(task.description, no_wrap=True, overflow="ellipsis")


class _Figure(ProgressColumn):
    def __init__(self, words: Callable[[Task], str], style: str = "cyan") -> None:
        super().__init__(table_column=Column(no_wrap=True))
        self._words = words
        self._style = style

    def render(self, task: Task) -> Text:
        return Text(self._words(task), style=self._style)


class _Spinner(SpinnerColumn):
    def render(self, task: Task) -> RenderableType:
        # What has counted to its end may still have something to do.
        return self.spinner.render(task.get_time())


def _amount_of(task: Task) -> str:
    unit = task.fields["unit"]
    return done_of(task.completed, task.total, unit) if unit and task.completed else ""


def _rate_of(task: Task) -> str:
    unit = task.fields["unit"]
    return rate(task.speed, unit) if unit and task.speed and not task.finished else ""


def _time_of(task: Task) -> str:
    """Return the time left where it is known, else what has passed; both move at all times."""
    now_s = time.monotonic()
    expected_s = None if task.finished else task.time_remaining
    if expected_s is not None:
        left_s = expected_s - (now_s - task.fields["moved_s"])
        if left_s >= 1:
            return f"{_clock(math.ceil(left_s))} left"
    return _clock(now_s - task.fields["began_s"])


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class _BarStep:
    def __init__(self, bars: Progress, task: TaskID) -> None:
        self._bars = bars
        self._task = task
        self._begun = False
        self._completed = 0.0

    def update(
        self,
        completed: float,
        *,
        total: float | None = None,
        note: str = "",
        rows: Sequence[tuple[str, str]] = (),
    ) -> None:
        if completed > 0 and not self._begun:
            self._begun = True  # what was done before counts for no rate
            self._bars.reset(self._task, completed=int(completed))
        if total is not None:
            self._bars.update(self._task, total=total)
        width = max((len(label) for label, _ in rows), default=0)
        beneath = [f"{label:{width}}  {words}" for label, words in rows] or [note]
        if any(beneath):
            lines = [
                Text(f"  {visible(each)}", style="dim", no_wrap=True, overflow="ellipsis")
                for each in beneath
            ]
            self._bars.update(self._task, beneath=lines)
        if completed != self._completed:
            self._completed = completed
            self._bars.update(self._task, moved_s=time.monotonic())
        self._bars.update(self._task, completed=completed)


class Bars:
    """Steps as bars; several at once share one display, as a terminal has room for one."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lock = threading.Lock()
        self._bars: Progress | None = None
        self._open = 0

    def say(self, text: str) -> None:
        """Print a line between the others."""
        self._console.print(Prose(text), crop=False)

    @contextmanager
    def step(
        self, label: str, *, total: float | None = None, unit: str = ""
    ) -> Iterator[ProgressStep]:
        """Show a step until the block ends."""
        start = time.monotonic()
        bars = self._joined()
        task = bars.add_task(
            label, total=total, unit=unit, beneath=[], began_s=start, moved_s=start
        )
        try:
            yield _BarStep(bars, task)
        finally:
            self._left(bars, task)
        took_s = time.monotonic() - start
        if took_s >= 1:
            done = Text.assemble(("✓", "green"), f" {label} ", (f"({took_s:.0f} s)", "dim"))
            self._console.print(Prose(done), crop=False)

    def _joined(self) -> Progress:
        with self._lock:
            if self._bars is None:
                self._bars = _display(self._console)
                self._bars.start()
            self._open += 1
            return self._bars

    def _left(self, bars: Progress, task: TaskID) -> None:
        with self._lock:
            bars.remove_task(task)
            self._open -= 1
            if self._open == 0:
                bars.stop()
                self._bars = None


class _Display(Progress):
    """One line for each step, the figures never cut; what it says of now stands beneath."""

    def get_renderables(self) -> Iterable[RenderableType]:
        yield self.make_tasks_table(self.tasks)
        for task in self.tasks:
            yield from task.fields["beneath"]


def _display(console: Console) -> Progress:
    uncut = Column(no_wrap=True)
    figures: list[ProgressColumn] = [
        _Figure(lambda task: f"{task.percentage:.0f}%" if task.total else "")
    ]
    if console.width >= _NARROW:
        bar = BarColumn(bar_width=20 if console.width >= _WIDE else 12, table_column=uncut.copy())
        figures = [bar, _Figure(_amount_of), _Figure(_rate_of)]
    return _Display(
        _Spinner(table_column=uncut),
        _Label(),
        *figures,
        _Figure(_time_of, "yellow"),
        console=console,
        transient=True,
        speed_estimate_period=_RATE_OVER_S,
    )
