"""Where output goes: results to standard output, everything else to standard error."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column
from rich.text import Text

from armload.core.progress import Progress as ProgressProtocol
from armload.core.progress import Step
from armload.core.values import format_bytes

_FIRST_LINE_AFTER_S = 2.0
_PLAIN_LINE_EVERY_S = 5.0
_PLAIN_LINE_AT_LEAST_EVERY_S = 30.0
_PLAIN_WIDTH = 160


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


@cache
def errors() -> Console:
    """Return the console on standard error."""
    return _Console(stderr=True)


@cache
def results() -> Console:
    """Return the console on standard output; a file or a pipe gets lines of a generous width."""
    return _Console(width=None if sys.stdout.isatty() else _PLAIN_WIDTH)


def show(renderable: RenderableType) -> None:
    """Print a result for a person; in a file or a pipe, no line ends with blanks."""
    console = results()
    if sys.stdout.isatty():
        console.print(renderable)
        return
    with console.capture() as captured:
        console.print(renderable)
    for line in captured.get().removesuffix("\n").split("\n"):
        print(line.rstrip())


def show_json(text: str) -> None:
    """Print the one JSON document that ``--json`` promises."""
    print(text)


def progress() -> ProgressProtocol:
    """Return bars on a terminal, plain lines elsewhere."""
    console = errors()
    return _Bars(console) if console.is_terminal else _Lines(console)


def _amount(count: float, unit: str) -> str:
    return format_bytes(count) if unit == "B" else f"{count:.0f}"


def _done_of(completed: float, total: float | None, unit: str) -> str:
    words = "" if unit == "B" else f" {unit}"
    of = f"/{_amount(total, unit)}" if total is not None else ""
    return f"{_amount(completed, unit)}{of}{words}"


class _Amount(ProgressColumn):
    def render(self, task: Task) -> Text:
        unit = task.fields["unit"]
        if not unit or task.completed == 0:
            return Text("")
        rate = f" · {_rate(task.speed, unit)}" if task.speed else ""
        return Text(_done_of(task.completed, task.total, unit) + rate, style="cyan")


def _rate(per_s: float, unit: str) -> str:
    return f"{format_bytes(per_s)}/s" if unit == "B" else f"{per_s:.3g}/s"


class _BarStep:
    def __init__(self, bars: Progress, task: TaskID) -> None:
        self._bars = bars
        self._task = task
        self._begun = False

    def update(self, completed: float, *, total: float | None = None, note: str = "") -> None:
        if completed > 0 and not self._begun:
            self._begun = True  # what was done before counts for no rate
            self._bars.reset(self._task, completed=int(completed))
        if total is not None:
            self._bars.update(self._task, total=total)
        if note:
            self._bars.update(self._task, note=note)
        self._bars.update(self._task, completed=completed)


class _Bars:
    """Steps as bars; several at once share one display, as a terminal has room for one."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lock = threading.Lock()
        self._bars: Progress | None = None
        self._open = 0

    def say(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False)

    @contextmanager
    def step(self, label: str, *, total: float | None = None, unit: str = "") -> Iterator[Step]:
        start = time.monotonic()
        bars = self._joined()
        task = bars.add_task(label, total=total, unit=unit, note="")
        try:
            yield _BarStep(bars, task)
        finally:
            self._left(bars, task)
        took_s = time.monotonic() - start
        if took_s >= 1:
            self._console.print(
                f"[green]✓[/] {escape(label)} [dim]({took_s:.0f} s)[/]", highlight=False
            )

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


def _display(console: Console) -> Progress:
    return Progress(
        SpinnerColumn(finished_text="[green]✓[/]"),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        _Amount(table_column=Column(no_wrap=True)),
        TimeElapsedColumn(),
        TimeRemainingColumn(elapsed_when_finished=False),
        TextColumn(
            "{task.fields[note]}",
            style="dim",
            markup=False,
            table_column=Column(no_wrap=True, overflow="ellipsis"),
        ),
        console=console,
        transient=True,
    )


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
        is_innermost: Callable[[_LineStep], bool] = lambda _: True,
    ) -> None:
        self._console = console
        self._is_innermost = is_innermost
        self._said_completed = 0.0
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
            if self._completed != self._said_completed or self._is_innermost(self):
                self._said_completed = self._completed
                self._console.print(self._line(), highlight=False, markup=False, soft_wrap=True)

    def _line(self) -> str:
        parts = [f"{self._label}:"]
        if self._unit and (self._completed or self._total):
            parts.append(_done_of(self._completed, self._total, self._unit))
        if self._total and 0 < self._completed < self._total:
            parts.append(f"({', '.join([f'{self._completed / self._total:.0%}', *self._pace()])})")
        if self._note:
            parts.append(self._note)
        if len(parts) == 1:
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
        return [_rate(moved / spent_s, self._unit), f"{left_s:.0f} s left"]


class _Lines:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._open: dict[int, list[_LineStep]] = {}
        """The steps of each thread, an inner one behind that which it is part of."""

    def say(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    @contextmanager
    def step(self, label: str, *, total: float | None = None, unit: str = "") -> Iterator[Step]:
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


def can_ask() -> bool:
    """Say whether a person is there to answer."""
    return sys.stdin.isatty()


def confirm(question: str) -> bool:
    """Ask a person; without one on the terminal the answer is no."""
    if not can_ask():
        return False
    from rich.prompt import Confirm

    try:
        return Confirm.ask(question, console=errors(), default=False)
    except EOFError:
        return False
