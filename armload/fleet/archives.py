"""Folders of runs as one archive: packed by a gateway, unpacked by the command."""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from armload.core.errors import TransferError
from armload.core.files import sha256_of, sync_folder, written_whole
from armload.core.workspace import runs_folder
from armload.fleet.orders import CHUNK_BYTES, RunArchive
from armload.runs.store import is_here

_OUTGOING, _INCOMING = ".outgoing", ".incoming"


def pack(runs: Sequence[str]) -> RunArchive:
    """Pack runs of this machine."""
    name = runs[-1]
    with written_whole(_outgoing(name)) as path:
        with tarfile.open(path, "w:gz", compresslevel=1) as archive:
            for run in runs:
                archive.add(runs_folder() / run, arcname=run)
        sha256, size_bytes = sha256_of(path), path.stat().st_size
    return RunArchive(name=name, runs=tuple(runs), size_bytes=size_bytes, sha256=sha256)


def archive_chunk(name: str, offset: int) -> bytes:
    """Return a chunk of an archive of this machine."""
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
        """Keep the runs in it beside the others.

        Raises:
            TransferError: it is not what was packed, or names something else than its runs.
        """
        whole = self.size_bytes == self._archive.size_bytes
        if not whole or sha256_of(self._path) != self._archive.sha256:
            self._path.unlink()
            raise TransferError(
                f"The runs {', '.join(self._archive.runs)} did not arrive as they were sent.",
                "Repeat the command: the gateway keeps them.",
            )
        with tempfile.TemporaryDirectory(dir=self._path.parent) as name:
            folder = Path(name)
            try:
                with tarfile.open(self._path) as archive:
                    for member, path in _files(archive, self._archive.runs):
                        target = folder / path
                        target.parent.mkdir(parents=True, exist_ok=True)
                        content = archive.extractfile(member)
                        assert content is not None  # noqa: S101 - it is a file
                        with content, target.open("xb") as out:
                            shutil.copyfileobj(content, out)
                            out.flush()
                            os.fsync(out.fileno())
            except (tarfile.TarError, EOFError) as error:
                raise TransferError(
                    f"The archive of {', '.join(self._archive.runs)} cannot be read: {error}."
                ) from error
            for run in self._archive.runs:
                if not is_here(run):
                    kept = runs_folder() / run
                    shutil.rmtree(kept, ignore_errors=True)
                    (folder / run).rename(kept)
            sync_folder(runs_folder())
        self._path.unlink()


def _files(
    archive: tarfile.TarFile, runs: Sequence[str]
) -> Iterator[tuple[tarfile.TarInfo, PurePosixPath]]:
    for member in archive:
        path = PurePosixPath(member.name)
        if path.is_absolute() or ".." in path.parts or path.parts[0] not in runs:
            raise TransferError(f"An archive of runs names {member.name!r}, which is none of them.")
        if member.isfile():
            yield member, path
