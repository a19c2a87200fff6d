"""What a verb returns: a result, or a list of them, as a program and as a person reads it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from pydantic import BaseModel
from rich.console import RenderableType
from rich.text import Text

from armload.core.errors import ArmloadError
from armload.core.shell import program_name
from armload.core.values import Value, ValueList
from armload.report.failure import Failure
from armload.report.layout import whole

if TYPE_CHECKING:
    from armload.report.pages import Page


Document = TypeVar("Document", bound=BaseModel)


@dataclass(frozen=True, kw_only=True)
class Aside:
    """A hint beside a view, which is no part of the result."""

    text: RenderableType


@dataclass(frozen=True, kw_only=True)
class Verbatim:
    """A text in another program's format, to be printed as it is."""

    text: str


Part = RenderableType | Aside | Verbatim | BaseModel
"""A part of what a person sees; a value is printed as its document."""


@dataclass(frozen=True, kw_only=True)
class Result(ABC):
    """What a verb has done or found."""

    @property
    def error(self) -> ArmloadError | None:
        """Why it is not what was asked for; raised after the result was shown."""
        return None

    @abstractmethod
    def document(self) -> BaseModel | None:
        """Return what ``--json`` prints; none where another result of the verb has it."""

    @abstractmethod
    def view(self) -> Iterable[Part]:
        """Return what a person sees."""

    def page(self, _folder: Path) -> Page | None:
        """Return its page, as it will lie in a folder; none for a result without pages.

        Raises:
            UsageError: there is nothing to draw yet.
        """
        return None

    @property
    def home(self) -> Path | None:
        """The folder that its page goes to whenever it is presented; none for no page."""
        return None

    @cached_property
    def files(self) -> Mapping[str, Path]:
        """Its page and pictures by label, written when they are first asked for."""
        if self.home is None or (page := self.page(self.home)) is None:
            return {}
        from armload.report.pages import write_page

        return {"page": write_page(page, self.home)}

    def remarks(self) -> Iterable[str]:
        """Return what a person is told of it, and the user of a program, too."""
        return ()


@dataclass(frozen=True, kw_only=True)
class Shown(Result):
    """A value that is its own document, and what a person sees of it."""

    value: BaseModel | None
    lines: tuple[Part, ...]
    error: ArmloadError | None = None

    def document(self) -> BaseModel | None:
        return self.value

    def view(self) -> Iterable[Part]:
        return self.lines


def as_result(
    value: BaseModel | None,
    *lines: Part,
    error: ArmloadError | None = None,
) -> Shown:
    """Return a value as a result."""
    return Shown(value=value, lines=lines, error=error)


class BoardOutcome(Value, Generic[Document]):
    """What a verb did on one of several boards.

    Attributes:
        board: its name.
        result: the document of that board alone, as far as it came; none if it did not begin.
        error: why it failed; none if it did not.
    """

    board: str
    result: Document | None
    error: Failure | None

    @classmethod
    def of(
        cls, board: str, result: Document | None, error: ArmloadError | None
    ) -> BoardOutcome[Document]:
        return cls(board=board, result=result, error=Failure.of(error) if error else None)


def labelled(width: int, rows: Iterable[tuple[str, object]]) -> Iterator[Text]:
    """Yield a line for each row: a label in that width, and a path or command, never broken."""
    return (whole(f"{label:{width}}{value}") for label, value in rows)


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
