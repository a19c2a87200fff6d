"""Work under way as bars, on a terminal that can redraw a line."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
)
from rich.table import Column
from rich.text import Text

from armload.cli.plain_lines import done_of, rate
from armload.core.progress import Step
from armload.report.layout import Prose, whole, wrapped

_WIDE, _NARROW = 100, 60
_RATE_OVER_S = 600.0
"""A run of a sweep, or a token of a model that does not fit the memory, may take minutes."""


class _Label(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(task.description, no_wrap=True, overflow="ellipsis")


class _Spinner(SpinnerColumn):
    def render(self, task: Task) -> RenderableType:
        # What has counted to its end may still have something to do.
        return self.spinner.render(task.get_time())


class _Amount(ProgressColumn):
    def render(self, task: Task) -> Text:
        unit = task.fields["unit"]
        if not unit or task.completed == 0:
            return Text("")
        return Text(done_of(task.completed, task.total, unit), style="cyan")


class _Percentage(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.percentage:.0f}%" if task.total else "", style="cyan")


class _Speed(ProgressColumn):
    def render(self, task: Task) -> Text:
        has_rate = task.fields["unit"] and task.speed and not task.finished
        return Text(rate(task.speed or 0, task.fields["unit"]) if has_rate else "", style="cyan")


class _Time(ProgressColumn):
    """The time left where it is known, else the time that has passed."""

    def render(self, task: Task) -> Text:
        left_s = None if task.finished else task.time_remaining
        if left_s is not None:
            return Text(f"{_clock(left_s)} left", style="yellow")
        return Text(_clock(time.monotonic() - task.fields["began_s"]), style="yellow")


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


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
    def step(self, label: str, *, total: float | None = None, unit: str = "") -> Iterator[Step]:
        """Show a step until the block ends."""
        start = time.monotonic()
        bars = self._joined()
        task = bars.add_task(label, total=total, unit=unit, note="", began_s=start)
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
            if note := task.fields["note"]:
                (line,) = wrapped(whole(f"  {note}", style="dim"), self.console.width)
                line.truncate(self.console.width, overflow="ellipsis")
                yield line


def _display(console: Console) -> Progress:
    def uncut() -> Column:
        return Column(no_wrap=True)

    figures: list[ProgressColumn] = [_Percentage(table_column=uncut())]
    if console.width >= _NARROW:
        figures = [
            BarColumn(bar_width=20 if console.width >= _WIDE else 12, table_column=uncut()),
            _Amount(table_column=uncut()),
            _Speed(table_column=uncut()),
        ]
    return _Display(
        _Spinner(table_column=uncut()),
        _Label(),
        *figures,
        _Time(table_column=uncut()),
        console=console,
        transient=True,
        speed_estimate_period=_RATE_OVER_S,
    )
