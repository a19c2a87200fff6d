"""Folders of runs and loads as one archive: packed by a gateway, unpacked by the command."""

from __future__ import annotations

import gzip
import os
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, cast

from armload.core.errors import TransferError
from armload.core.files import sha256_of, sync_folder, written_whole
from armload.core.workspace import loads_folder, runs_folder
from armload.fleet.messages import CHUNK_BYTES, MOST_ARCHIVED_BYTES, RunArchive
from armload.runs.store import is_here

_OUTGOING, _INCOMING = ".outgoing", ".incoming"

_READ_BYTES = 16 << 20
_MOST_FILES = 100_000

_UNREADABLE = (
    *(tarfile.TarError, zlib.error, gzip.BadGzipFile),
    *(EOFError, FileExistsError, NotADirectoryError, IsADirectoryError),
    *(ValueError, OverflowError, RecursionError),
)
"""What reading an archive raises that nobody packed as runs are packed."""


def pack(runs: Sequence[str], loads: Sequence[str] = ()) -> RunArchive:
    name = [*runs, *loads][-1]
    empty = RunArchive(
        name=name, runs=tuple(runs), loads=tuple(loads), size_bytes=0, sha256="0" * 64
    )
    with written_whole(_outgoing(name)) as path:
        with tarfile.open(path, "w:gz", compresslevel=1) as archive:
            for place, folder in folders_in(empty).items():
                archive.add(folder, arcname=place)
        known = {"sha256": sha256_of(path), "size_bytes": path.stat().st_size}
    return empty.model_copy(update=known)


def folders_in(archive: RunArchive) -> dict[str, Path]:
    """Return what is in an archive, and where that lies on this machine."""
    return {
        **{f"runs/{run}": runs_folder() / run for run in archive.runs},
        **{f"loads/{load}": loads_folder() / load for load in archive.loads},
    }


def archive_chunk(name: str, offset: int) -> bytes:
    with _outgoing(name).open("rb") as file:
        file.seek(offset)
        return file.read(CHUNK_BYTES)


def delete_archive(name: str) -> None:
    """Delete an archive of this machine, if it is there."""
    _outgoing(name).unlink(missing_ok=True)


def _outgoing(name: str) -> Path:
    return runs_folder() / _OUTGOING / f"{name}.tar.gz"


class Incoming:
    """An archive that comes in chunks; one whose transfer was interrupted is continued."""

    def __init__(self, archive: RunArchive) -> None:
        self._archive = archive
        self._folders = folders_in(archive)
        self._names = (*archive.runs, *archive.loads)
        self._path = runs_folder() / _INCOMING / f"{archive.sha256}.tar.gz"
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.touch()

    @property
    def size_bytes(self) -> int:
        """How much has come."""
        return self._path.stat().st_size

    def append(self, offset: int, chunk: bytes) -> None:
        """Add a chunk; one that is here already changes nothing."""
        if offset == self.size_bytes:
            with self._path.open("ab") as file:
                file.write(chunk)

    def unpack(self) -> None:
        """Keep the runs in it beside the others."""
        whole = self.size_bytes == self._archive.size_bytes
        if not whole or sha256_of(self._path) != self._archive.sha256:
            self._path.unlink()
            raise TransferError(
                f"{', '.join(self._names)} did not arrive as sent.",
                "Repeat the command: the gateway keeps them.",
            )
        with tempfile.TemporaryDirectory(dir=self._path.parent) as name:
            folder = Path(name)
            try:
                with gzip.open(self._path) as packed, _opened(packed) as archive:
                    for member, path in _files(archive, self._folders):
                        target = folder / path
                        target.parent.mkdir(parents=True, exist_ok=True)
                        content = archive.extractfile(member)
                        assert content is not None  # noqa: S101 - it is a file
                        with content, target.open("xb") as out:
                            shutil.copyfileobj(content, out)
                            out.flush()
                            os.fsync(out.fileno())
            except _UNREADABLE as error:
                self._path.unlink()
                raise TransferError(
                    f"The archive of {', '.join(self._names)} cannot be read: "
                    f"{' '.join(str(error).split())[:200]}.",
                    "Look at the worker's output, and check who can use the scheduler.",
                ) from error
            for place, kept in self._folders.items():
                if not (folder / place).is_dir():
                    raise TransferError(f"The archive of {kept.name} does not contain it.")
                if not (is_here(kept.name) if kept.parent == runs_folder() else kept.is_dir()):
                    shutil.rmtree(kept, ignore_errors=True)
                    kept.parent.mkdir(exist_ok=True)
                    (folder / place).rename(kept)
                    sync_folder(kept.parent)
        self._path.unlink()


def _opened(packed: gzip.GzipFile) -> tarfile.TarFile:
    return tarfile.open(fileobj=cast("IO[bytes]", _ShortReads(packed)), mode="r:")


class _ShortReads:
    """A file that is never asked for much at once, as by a header that claims to be large."""

    def __init__(self, file: gzip.GzipFile) -> None:
        self._file = file
        self.seek = file.seek
        self.tell = file.tell

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= _READ_BYTES:
            raise tarfile.ReadError("a header is too large")
        return self._file.read(size)


def _files(
    archive: tarfile.TarFile, places: Collection[str]
) -> Iterator[tuple[tarfile.TarInfo, PurePosixPath]]:
    size_bytes = 0
    for number, member in enumerate(archive):
        size_bytes += member.size
        if size_bytes > MOST_ARCHIVED_BYTES or number >= _MOST_FILES:
            raise tarfile.ReadError("it is too large")
        path = PurePosixPath(member.name)
        is_inside = str(PurePosixPath(*path.parts[:2])) in places
        if path.is_absolute() or ".." in path.parts or not is_inside:
            raise TransferError(
                f"An archive of runs names {member.name!r}, which is not part of its runs."
            )
        if member.isfile():
            yield member, path
