"""How long-running work reports its progress. The command line decides how that looks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    """Shows nothing: for callers that are programs."""

    @contextmanager
    def step(
        self, label: str, *, total: float | None = None, unit: str = ""
    ) -> Iterator[ProgressStep]:
        del label, total, unit
        yield _SilentStep()

    def say(self, text: str) -> None:
        del text


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
