"""What the collecting script sends of a run, taken piece by piece and written to files."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from armload.core.errors import TransferError
from armload.core.progress import ProgressStep
from armload.core.values import Value, whole_number
from armload.deploy.board_runs import check_name
from armload.deploy.layout import PROGRAM_FOLDER, RUN_FILES


class Arrived(Value):
    """What a board sent of a run.

    Attributes:
        sizes: lengths of the files, by their names.
        sums: their SHA-256 on the board; empty where it has no tool for that.
        left: how many files were not sent.
        examples: names of some of these.
    """

    sizes: Mapping[str, int]
    sums: Mapping[str, str]
    left: int = 0
    examples: tuple[str, ...] = ()


class Receiver:
    """Takes what the collecting script sends, piece by piece, and writes the files.

    Args:
        folder: where they grow, each beside its place.
        parts: how much of some of them is there.
        known: names that a file may have outside of the program's folder.
    """

    def __init__(
        self,
        folder: Path,
        parts: Mapping[str, int],
        board_name: str,
        step: ProgressStep,
        known: Sequence[str] = RUN_FILES,
    ) -> None:
        self.sizes: dict[str, int] = {}
        self._known = known
        self._left = 0
        self._examples: list[str] = []
        self._folder = folder
        self._parts = parts
        self._board_name = board_name
        self._step = step
        self._rest = b""
        self._in_listing = True
        self._listed: list[tuple[str, str]] = []
        self._awaited: list[tuple[str, int]] = []
        self._sums: dict[str, str] = {}
        self._complete = False
        self._done_bytes = 0

    def take(self, data: bytes) -> None:
        self._rest += data
        try:
            if self._in_listing:
                self._take_listing()
            if not self._in_listing:
                self._take_bytes()
        except ValueError as error:
            raise TransferError(
                f"{self._board_name}: the fetched run cannot be read: {error}.",
                fetch_again(self._board_name),
            ) from error

    @property
    def listed(self) -> bool:
        return bool(self._listed)

    def done(self) -> Arrived:
        self.close()
        if not self._complete:
            raise TransferError(
                f"{self._board_name}: the fetched run's files are truncated, or changed during "
                "the transfer.",
                fetch_again(self._board_name),
            )
        return Arrived(
            sizes=self.sizes, sums=self._sums, left=self._left, examples=tuple(self._examples)
        )

    def close(self) -> None:
        self._rest = b""

    def _take_listing(self) -> None:
        while self._in_listing and b"\n" in self._rest:
            line, _, self._rest = self._rest.partition(b"\n")
            if line == b"#bytes":
                self._in_listing = False
                self._begin_files()
                return
            word, _, rest = line.decode("utf-8", "surrogateescape").partition(" ")
            if word == "#more":
                self._left = whole_number(rest) or 0
            elif word == "#left":
                self._examples.append(rest)
            elif word != "#":
                self._listed.append((word, rest))

    def _begin_files(self) -> None:
        for length, name in self._listed:
            self._check(name)
            size = whole_number(length)
            if size is None:
                raise ValueError(f"{name[:200]!r} has no length")
            self.sizes[name] = size
        missing = sum(size - self._parts.get(name, 0) for name, size in self.sizes.items())
        if missing > shutil.disk_usage(self._folder).free:
            # Found out later, it would have filled the disk for every other run.
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._folder))
        for name, size in self.sizes.items():
            have = self._parts.get(name, 0)
            if have > size:
                (self._folder / part_of(name)).unlink()
                raise ValueError(f"{name} became shorter")
            self._awaited.append((name, size - have))
            if not have:
                part = self._folder / part_of(name)
                part.parent.mkdir(parents=True, exist_ok=True)
                part.write_bytes(b"")
        self._awaited.reverse()
        total = sum(self.sizes.values())
        self._done_bytes = total - sum(left for _, left in self._awaited)
        self._step.update(self._done_bytes, total=total)

    def _take_bytes(self) -> None:
        while self._awaited:
            name, left = self._awaited[-1]
            piece, self._rest = self._rest[:left], self._rest[left:]
            if piece:
                with (self._folder / part_of(name)).open("ab") as file:
                    file.write(piece)
                self._done_bytes += len(piece)
                self._step.update(self._done_bytes)
            if len(piece) < left:
                self._awaited[-1] = (name, left - len(piece))
                return
            self._awaited.pop()
        while b"\n" in self._rest and not self._complete:
            line, _, self._rest = self._rest.partition(b"\n")
            if line == b"#sums":
                continue
            if line == b"#end":
                self._complete = True
            elif len(line) > 66 and line[64:65] == b" ":
                name = line[66:].decode("utf-8", "surrogateescape")
                self._sums[name] = line[:64].decode("ascii", "replace")
            else:
                raise ValueError("the files are truncated, or changed during the transfer")

    def _check(self, name: str) -> None:
        """Refuse a file that is not for this place, such as one that only this machine writes."""
        folder, *inside = name.split("/")
        if inside and folder == PROGRAM_FOLDER:
            for part in inside:
                check_name(part)
        elif name not in self._known:
            raise ValueError(f"{name[:200]!r} is not a file of a run")


def part_of(name: str) -> PurePosixPath:
    """Return where a file grows in a run's folder here: beside its place, which is kept whole."""
    first, *rest = PurePosixPath(name).parts
    return PurePosixPath(f".{first}.part", *rest)


def fetch_again(board_name: str) -> str:
    """Return what to do when a run did not arrive whole."""
    return f"Fetch it again after the run has ended: armload pull --board {board_name}"
