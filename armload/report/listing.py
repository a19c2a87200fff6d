"""Lists of recorded results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import BaseModel
from rich.console import RenderableType

from armload.core.errors import ArmloadError
from armload.core.shell import program_name
from armload.core.values import ValueList
from armload.report.result import Aside, Part, Result

Listed = TypeVar("Listed")

_USUAL_LENGTH = 20


@dataclass(frozen=True, kw_only=True)
class Listing(Result, Generic[Listed]):
    """The ids of results for a program, and a table of the latest for a person.

    Attributes:
        folders: of all of them, the oldest first.
        last: how many of the latest are listed; 0 for all; where none is given, all for a program,
            and as many as fit a screen for a person.
        read: returns what a folder holds.
        table: lays several out.
        nothing: what is said where there are none.
        again: the command that lists older ones, but for its ``--last``.
    """

    folders: Sequence[Path]
    last: int | None
    read: Callable[[Path], Listed]
    table: Callable[[Sequence[Listed]], RenderableType]
    nothing: str
    again: str

    def document(self) -> BaseModel:
        return ValueList[str](tuple(folder.name for folder in self.folders[-(self.last or 0) :]))

    def view(self) -> Iterator[Part]:
        if not self.folders:
            yield Aside(text=self.nothing)
            return
        length = _USUAL_LENGTH if self.last is None else self.last
        shown, found = self.folders[-length:], []
        for folder in shown:
            try:
                found.append(self.read(folder))
            except ArmloadError as error:
                yield Aside(text=f"skipped: {error}")
        yield self.table(found)
        if len(shown) > 1:
            yield Aside(text=f"Compare two: {program_name()} compare ID ID")
        if older := len(self.folders) - len(shown):
            yield Aside(text=f"{older} older: {self.again} --last {len(self.folders)}")
