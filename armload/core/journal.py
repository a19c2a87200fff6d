"""Results that grow, each a folder of a workspace: a header, and journals of entries beside it.

``<root>/<id>/<noun>.json`` is the header: what was begun. Entries are appended as JSON lines, each
durable before the next is made, so that an interrupted command loses what was under way alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Generic, Self, TypeVar

from pydantic import BaseModel

from armload.core.errors import (
    DataError,
    DiskError,
    NewerFormatError,
    NoSuchResultError,
    UsageError,
)
from armload.core.files import is_there, unreadable, write_whole
from armload.core.json_lines import append_lines, write_lines
from armload.core.locks import locked
from armload.core.progress import Progress
from armload.core.validation_messages import explain_mistake
from armload.core.values import Value, as_json, counted, parse_json, with_article

Read = TypeVar("Read", bound=BaseModel)
Entry = TypeVar("Entry", bound=BaseModel)
Header = TypeVar("Header", bound="JournalHeader")
Command = TypeVar("Command", bound="CommandHeader")

LOCK_FILE = ".lock"
START_OVER = "To start over instead, add --new."


class JournalHeader(Value):
    """What was begun.

    Attributes:
        format: version of the file's format.
        id: the folder's name.
        armload: the version that began it.
    """

    format: int
    id: str
    started_utc: str
    armload: str


class CommandHeader(JournalHeader):
    """What a command has begun that can be interrupted and repeated.

    Attributes:
        fingerprint: a checksum over all that decides the entries; two journals of the same one are
            of the same command.
    """

    fingerprint: str


@dataclass(frozen=True, kw_only=True)
class JournalKind(Generic[Header, Entry]):
    """What the journals of one kind have in common.

    Attributes:
        noun: what one is called, and the header's file, such as ``evaluation``.
        words: in the middle of each id, such as ``eval``; the first names the latest of them.
        entries_file: its name; with ``{}`` for a number where there are several.
        root: returns the folder that holds them.
        make: the command that makes one.
        repair: what to do where a file was modified.
    """

    noun: str
    words: tuple[str, ...]
    header: type[Header]
    entry: type[Entry]
    entries_file: str = "journal.jsonl"
    root: Callable[[], Path]
    make: str
    repair: str

    @property
    def file(self) -> str:
        return f"{self.noun}.json"

    @property
    def latest(self) -> str:
        """What a person calls the latest of them where other kinds may be meant, too."""
        return f"latest-{self.words[0]}"

    def folders(self) -> list[Path]:
        return sorted(path.parent for path in self.root().glob(f"*/{self.file}"))

    def is_meant(self, reference: str) -> bool:
        """Return whether a reference that may be to another kind of result is to one of these.

        It is if it is ``latest-WORD``, the folder of one, the beginning or the end of an id that
        holds the word, or the last part of an id, as lists show it.
        """
        if reference == self.latest or is_there(Path(reference) / self.file):
            return True
        found = _matching(self.folders(), reference)
        if any(word in reference for word in self.words):
            return bool(found)
        return any(folder.name.endswith(f"-{reference}") for folder in found)

    def find(self, reference: str) -> Path:
        """Return the folder that a person means.

        Args:
            reference: a folder, an id, the beginning or the end of one, or ``latest`` or
                ``latest-WORD`` for the latest with an entry, if any has one.

        Raises:
            UsageError: none, or more than one, fits.
        """
        if is_there(Path(reference) / self.file):
            return Path(reference)
        folders = self.folders()
        if reference == self.latest:
            folders = [each for each in folders if f"-{self.words[0]}-" in each.name]
        if not folders:
            raise NoSuchResultError(
                f"There is no {self.noun} in {self.root()} yet.",
                f"Make one with: {self.make}",
                noun=self.noun,
                reference=reference,
            )
        if reference in ("latest", self.latest):
            return next(filter(self._has_entries, reversed(folders)), folders[-1])
        found = _matching(folders, reference)
        if not found:
            raise NoSuchResultError(
                f"There is no {self.noun} {reference!r}.",
                f"The latest is {folders[-1].name}.",
                noun=self.noun,
                reference=reference,
            )
        if len(found) > 1:
            raise UsageError(
                f"{reference!r} is ambiguous: {found[-1].name} or {found[-2].name}.",
                "Give more of the id.",
            )
        return found[0]

    def _has_entries(self, folder: Path) -> bool:
        return any(each.stat().st_size for each in folder.glob(self.entries_file.format("*")))

    def read(self, path: Path, model: type[Read]) -> Read:
        """Read a JSON document.

        Raises:
            DataError: it was modified, or is of a newer format.
            DiskError: it cannot be read.
        """
        with _opened(path) as file:
            return self._parsed(str(path), file.read(), model, self.repair)

    def read_lines(self, path: Path, model: type[Read], repair: str = "") -> list[Read]:
        """Read a file with a JSON document on each line; nothing where there is no such file.

        What was never completed is left out: a last line that was cut off, and lines with zeros,
        which some file systems leave where a power cut took the content of a block.
        """
        return list(self.each_line(path, model, repair))

    def each_line(self, path: Path, model: type[Read], repair: str = "") -> Iterator[Read]:
        """Yield what ``read_lines`` returns, without holding the file in memory."""
        if not path.exists():
            return
        with _opened(path) as file:
            for number, line in enumerate(file, start=1):
                if line.endswith(b"\n") and b"\0" not in line:
                    yield self._parsed(
                        f"{path}, line {number}", line[:-1], model, repair or self.repair
                    )

    def _parsed(self, where: str, content: bytes, model: type[Read], repair: str) -> Read:
        try:
            fields = parse_json(content)
            newest = model.model_fields["format"].default if "format" in model.model_fields else 1
            version = fields.get("format", 1) if isinstance(fields, dict) else 1
            if isinstance(version, int) and version > newest:
                raise NewerFormatError(where, version, newest)
            return model.model_validate(fields)
        except ValueError as error:
            raise DataError(
                f"{where}: this is not a valid record of {with_article(self.noun)}: "
                f"{explain_mistake(error, model)}.",
                f"The file was modified. {repair}",
            ) from error


class Journal(Generic[Header, Entry]):
    """One folder. A kind of journal is a subclass that says what its entries mean.

    Attributes:
        folder: where it lies.
        header: what was begun.
    """

    kind: ClassVar[JournalKind[Any, Any]]

    def __init__(self, folder: Path, header: Header) -> None:
        self.folder = folder
        self.header = header
        self._entries: dict[int, list[Entry]] = {}

    @classmethod
    def begin(cls, header: Header) -> Self:
        made = cls(cls.kind.root() / header.id, header)
        made.rewrite_header(header)
        return made

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read a folder; its entries are read when they are asked for.

        Raises:
            DataError: the header was modified, or is of a newer format.
            DiskError: it cannot be read.
        """
        return cls(folder, cls.kind.read(folder / cls.kind.file, cls.kind.header))

    @classmethod
    def find(cls, reference: str) -> Self:
        """Return the one that a person means.

        Raises:
            UsageError: as for ``JournalKind.find`` and ``read``.
        """
        return cls.read(cls.kind.find(reference))

    @contextmanager
    def locked(self, progress: Progress) -> Iterator[None]:
        """Keep other commands from it within the block; first forget what was read before."""
        waiting = f"{self.header.id} is running in another terminal. Waiting for it."
        with locked(self.folder / LOCK_FILE, progress, waiting=waiting):
            self._entries.clear()
            yield

    @property
    def entries(self) -> Sequence[Entry]:
        return self.entries_of(0)

    def entries_file(self, number: int = 0) -> Path:
        """Return the file of entries, or the one with a number."""
        return self.folder / self.kind.entries_file.format(number)

    def entries_of(self, number: int) -> Sequence[Entry]:
        """Return the entries of the file with a number, in the order in which they were made."""
        if number not in self._entries:
            read = self.kind.read_lines(self.entries_file(number), self.kind.entry)
            self._entries.setdefault(number, read)  # another thread may have been first
        return self._entries[number]

    def append(self, *entries: Entry, number: int = 0) -> None:
        self.entries_of(number)
        append_lines(self.entries_file(number), entries)
        self._entries[number] += entries

    def rewrite(self, entries: Sequence[Entry]) -> None:
        """Replace all entries, where they are in one file."""
        write_lines(self.entries_file(), entries)
        self._entries[0] = list(entries)

    def rewrite_header(self, header: Header) -> None:
        write_whole(self.folder / self.kind.file, as_json(header).encode())
        self.header = header


class CommandJournal(Journal[Command, Entry], ABC, Generic[Command, Entry]):
    """The journal of a command that resumes when it is repeated."""

    @property
    @abstractmethod
    def is_finished(self) -> bool:
        """Whether the same command begins another one."""

    def say_resumed(self, progress: Progress, noun: str) -> None:
        """Say how much an earlier command has done, if anything.

        Args:
            noun: what an entry is called.
        """
        if self.entries:
            progress.say(resuming(self.header.id, counted(len(self.entries), noun)))

    def renew(self, header: Command) -> None:
        """Take from the repeated command what does not make it another one, as its time limit."""
        del header

    @classmethod
    def resume(cls, header: Command, progress: Progress, *, since: str = "") -> Self | None:
        """Return the latest journal of the same command, unless it is finished.

        Args:
            since: the beginning of an id; older ones are not looked at.
        """
        for folder in reversed(cls.kind.folders()):
            if folder.name < since:
                return None
            try:
                found = cls.read(folder)
                if found.header.fingerprint == header.fingerprint:
                    found.renew(header)
                    return None if found.is_finished else found
            except (DataError, DiskError) as error:
                progress.say(f"skipped: {error.message}")
        return None

    @classmethod
    def resume_or_begin(
        cls, header: Command, progress: Progress, *, new: bool, since: str = ""
    ) -> Self:
        """Return what ``resume`` does, or else begin another one.

        Args:
            new: begin it in any case.
        """
        found = None if new else cls.resume(header, progress, since=since)
        return found or cls.begin(header)


def resuming(what: str, done: str) -> str:
    """Say what is resumed.

    Args:
        what: the id of a sweep, a search or an evaluation.
        done: how much of it is there, such as ``3 runs``.
    """
    return f"Resuming {what}, with {done} already done. {START_OVER}"


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
        with path.open("rb") as file:
            yield file
    except OSError as error:
        raise unreadable(path, error) from error


def _matching(folders: Sequence[Path], reference: str) -> list[Path]:
    return [
        folder
        for folder in folders
        if folder.name.startswith(reference) or folder.name.endswith(reference)
    ]
