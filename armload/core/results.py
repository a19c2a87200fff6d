"""Results as folders of a workspace: finding the one that a person means, and reading its files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

from armload.core.errors import DataError, NewerFormatError, UsageError
from armload.core.files import is_there, unreadable, write_whole
from armload.core.validation_messages import explain_mistake
from armload.core.values import load_json

Read = TypeVar("Read", bound=BaseModel)


@dataclass(frozen=True, kw_only=True)
class Results:
    """The folders of one kind of results.

    Attributes:
        noun: what one is called, such as ``evaluation``.
        word: in the middle of each id, such as ``eval``.
        file: in every folder; it describes the result.
        newest_format: of that file, that can be read.
        root: returns the folder that holds them.
        make: the command that makes one.
        repair: what to do where a file was modified.
    """

    noun: str
    word: str
    file: str
    newest_format: int
    root: Callable[[], Path]
    make: str
    repair: str

    @property
    def latest(self) -> str:
        """What a person calls the latest of them where other kinds may be meant, too."""
        return f"latest-{self.word}"

    def folders(self) -> list[Path]:
        """Return the folders of all, the oldest first."""
        return sorted(path.parent for path in self.root().glob(f"*/{self.file}"))

    def are_meant(self, reference: str) -> bool:
        """Say whether a reference that may be to another kind of result is to one of these.

        It is if it is ``latest-WORD``, the folder of one, or the beginning or the end of an id
        that holds the word.
        """
        if reference == self.latest or is_there(Path(reference) / self.file):
            return True
        names = [folder.name for folder in self.folders()] if self.word in reference else []
        return any(name.startswith(reference) or name.endswith(reference) for name in names)

    def find(self, reference: str) -> Path:
        """Return the folder that a person means.

        Args:
            reference: a folder, an id, the beginning or the end of one, ``latest`` or
                ``latest-WORD``.

        Raises:
            UsageError: none, or more than one, fits.
        """
        if is_there(Path(reference) / self.file):
            return Path(reference)
        folders = self.folders()
        if not folders:
            raise UsageError(
                f"There is no {self.noun} in {self.root()} yet.", f"Make one with: {self.make}"
            )
        if reference in ("latest", self.latest):
            return folders[-1]
        found = fitting(folders, reference)
        if found is None:
            raise UsageError(
                f"There is no {self.noun} {reference!r}.", f"The latest is {folders[-1].name}."
            )
        return found

    def read(self, path: Path, kind: type[Read]) -> Read:
        """Read a JSON file of a result.

        Raises:
            DataError: it was changed, or is of a newer format.
            DiskError: it cannot be read.
        """
        try:
            content = path.read_bytes()
        except OSError as error:
            raise unreadable(path, error) from error
        return self.parse(path, content, kind)

    def read_lines(self, path: Path, kind: type[Read]) -> list[Read]:
        """Read a file with a JSON document on each line; nothing where there is no such file.

        A last line that was cut off is something whose end was not noted.

        Raises:
            DataError: a line was changed, or is of a newer format.
        """
        content = path.read_bytes() if path.exists() else b""
        return [self.parse(path, line, kind) for line in content.split(b"\n")[:-1]]

    def parse(self, path: Path, content: bytes, kind: type[Read]) -> Read:
        """Read a JSON document from a file of a result, or a line of one.

        Raises:
            DataError: it was changed, or is of a newer format.
        """
        try:
            fields = load_json(content)
            version = fields.get("format", 1) if isinstance(fields, dict) else 1
            if isinstance(version, int) and version > self.newest_format:
                raise NewerFormatError(path, version, self.newest_format)
            return kind.model_validate(fields)
        except ValueError as error:
            article = "an" if self.noun[0] in "aeiou" else "a"
            mistake = explain_mistake(error, kind)
            raise DataError(
                f"{path}: this is not a valid record of {article} {self.noun}: {mistake}.",
                f"The file was modified. {self.repair}",
            ) from error


def fitting(folders: Sequence[Path], reference: str) -> Path | None:
    """Return the folder whose name begins or ends so; none if there is none.

    Args:
        folders: the oldest first.

    Raises:
        UsageError: several do.
    """
    found = [
        folder
        for folder in folders
        if folder.name.startswith(reference) or folder.name.endswith(reference)
    ]
    if len(found) > 1:
        raise UsageError(
            f"{reference!r} is ambiguous: {found[-1].name} or {found[-2].name}.",
            "Give more of the id.",
        )
    return found[0] if found else None


def write_lines(path: Path, values: Sequence[BaseModel]) -> None:
    """Write a JSON document on each line, so that it survives a power failure right afterwards."""
    write_whole(path, "".join(f"{each.model_dump_json()}\n" for each in values).encode())
