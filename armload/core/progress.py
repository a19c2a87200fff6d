"""How long-running work reports its progress. The command line decides how that looks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol


class ProgressStep(Protocol):
    """One piece of work under way."""

    def update(
        self,
        completed: float,
        *,
        total: float | None = None,
        note: str = "",
        rows: Sequence[tuple[str, str]] = (),
    ) -> None:
        """Report that ``completed`` units (of ``total``, when it is known) are done.

        ``note`` is a few words on what happens now; empty keeps the last one. ``rows``, each with
        a label, say more of it where there is a display that can redraw them, and stand for it.
        """


class Progress(Protocol):
    """Where steps are shown."""

    def step(
        self, label: str, *, total: float | None = None, unit: str = ""
    ) -> AbstractContextManager[ProgressStep]:
        """Open a step. ``unit`` is ``"B"`` for bytes, else a plural noun, such as ``"tokens"``."""

    def say(self, text: str) -> None:
        """Show one line that stays."""


class _SilentStep:
    def update(
        self,
        completed: float,
        *,
        total: float | None = None,
        note: str = "",
        rows: Sequence[tuple[str, str]] = (),
    ) -> None:
        del completed, total, note, rows


class Silent:
    @contextmanager
    def step(
        self, label: str, *, total: float | None = None, unit: str = ""
    ) -> Iterator[ProgressStep]:
        del label, total, unit
        yield _SilentStep()

    def say(self, text: str) -> None:
        del text


class Within:
    """Shows all steps as one that is open already."""

    def __init__(self, progress: Progress, step: ProgressStep) -> None:
        self._progress = progress
        self._step = step

    @contextmanager
    def step(
        self, label: str, *, total: float | None = None, unit: str = ""
    ) -> Iterator[ProgressStep]:
        del label, total, unit
        yield self._step

    def say(self, text: str) -> None:
        self._progress.say(text)


class Labelled:
    """Shows the work of one of several parallel tasks, under its name."""

    def __init__(self, progress: Progress, name: str) -> None:
        self._progress = progress
        self._name = name

    def step(
        self, label: str, *, total: float | None = None, unit: str = ""
    ) -> AbstractContextManager[ProgressStep]:
        return self._progress.step(f"{self._name}: {label}", total=total, unit=unit)

    def say(self, text: str) -> None:
        named = text if text.startswith(f"{self._name}: ") else f"{self._name}: {text}"
        self._progress.say(named)


class Stoppable:
    """Shows the progress of the thread that makes it, in which it raises what stops it, once.

    A signal reaches the main thread alone. What takes long reports its progress.

    Args:
        stop: is asked for what to raise; none to go on.
    """

    def __init__(self, progress: Progress, stop: Callable[[], BaseException | None]) -> None:
        self._progress = progress
        self._stop: Callable[[], BaseException | None] | None = stop
        self._thread = threading.get_ident()

    def step(
        self, label: str, *, total: float | None = None, unit: str = ""
    ) -> AbstractContextManager[ProgressStep]:
        self.check()
        return self._checking(label, total, unit)

    def say(self, text: str) -> None:
        self._progress.say(text)

    def check(self) -> None:
        """Raise what is to be raised; helpers of the thread may report its progress, too."""
        if self._stop is None or threading.get_ident() != self._thread:
            return
        fault = self._stop()
        if fault is not None:
            self._stop = None
            raise fault

    @contextmanager
    def _checking(self, label: str, total: float | None, unit: str) -> Iterator[ProgressStep]:
        with self._progress.step(label, total=total, unit=unit) as step:
            yield _StoppableStep(step, self.check)


class _StoppableStep:
    def __init__(self, step: ProgressStep, check: Callable[[], None]) -> None:
        self._step = step
        self._check = check

    def update(
        self,
        completed: float,
        *,
        total: float | None = None,
        note: str = "",
        rows: Sequence[tuple[str, str]] = (),
    ) -> None:
        self._check()
        self._step.update(completed, total=total, note=note, rows=rows)
