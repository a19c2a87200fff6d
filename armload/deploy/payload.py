"""Files and folders that are to lie on a board under the names that they have here."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from armload.core.errors import UsageError
from armload.core.files import require_utf_8
from armload.core.progress import Progress
from armload.core.values import Value
from armload.deploy.layout import OWN_FOLDER, Layout
from armload.deploy.upload import Upload
from armload.models.model import Model, cached_sha256


class FoundFile(Value):
    """One file of a payload.

    Attributes:
        name: with the payload's own name before it: ``qwen/config.json``.
        local: on this machine.
        size_bytes: of its content.
        executable: whether it may be run.
    """

    name: PurePosixPath
    local: Path
    size_bytes: int
    executable: bool


class PayloadFile(FoundFile):
    """One file of a payload, read.

    Attributes:
        sha256: of its content.
    """

    sha256: str


class FoundPayload(Value):
    """A file, or a folder with all that is in it; empty folders are left out.

    Attributes:
        name: its last name.
        local: its whole path on this machine, as it was given.
        files: its files.
    """

    name: str
    local: Path
    files: tuple[FoundFile, ...]


class Payload(FoundPayload):
    """A file or a folder, read.

    Attributes:
        sha256: of the file; of a folder, over its files' names, checksums and rights.
    """

    sha256: str
    files: tuple[PayloadFile, ...]

    @classmethod
    def of_file(cls, path: Path, *, sha256: str, executable: bool) -> Payload:
        """Describe one file whose checksum is known."""
        file = PayloadFile(
            name=PurePosixPath(path.name),
            local=path,
            sha256=sha256,
            size_bytes=path.stat().st_size,
            executable=executable,
        )
        return cls(name=path.name, local=path, sha256=sha256, files=(file,))

    @classmethod
    def of_model(cls, model: Model) -> Payload:
        """Describe a model, of one file or several, that was read."""
        if not model.parts:
            return cls.of_file(model.path, sha256=model.sha256, executable=False)
        files = [
            cls.of_file(part.path, sha256=part.sha256, executable=False).files[0]
            for part in model.parts
        ]
        return cls(name=model.name, local=model.path, sha256=model.sha256, files=tuple(files))

    @property
    def size_bytes(self) -> int:
        """Of all its files."""
        return sum(file.size_bytes for file in self.files)

    @property
    def is_program(self) -> bool:
        return (
            len(self.files) == 1 and self.files[0].local == self.local and self.files[0].executable
        )

    def folder(self, layout: Layout) -> PurePosixPath:
        """Return the folder on a board that nothing else lies in."""
        place = layout.program if self.is_program else layout.model
        return place(self.sha256, self.name).parent

    def items(self, layout: Layout) -> tuple[Upload, ...]:
        """Return its files with the places where they are to lie on a board."""
        return tuple(
            Upload(
                local=file.local,
                remote=self.folder(layout) / file.name,
                sha256=file.sha256,
                executable=file.executable,
            )
            for file in self.files
        )


def find_payload(path: Path) -> FoundPayload:
    local = Path(os.path.normpath(path.expanduser().absolute()))
    if not local.exists():
        raise UsageError(f"{path}: no such file or folder.", "Correct the path.")
    files = tuple(
        _found_file(PurePosixPath(local.name, *file.relative_to(local).parts), file)
        for file in ([local] if local.is_file() else sorted(_files(local)))
    )
    if not files:
        raise UsageError(f"{path}: this folder contains no files.", "Name one that contains files.")
    return FoundPayload(name=local.name, local=local, files=files)


def read_payload(path: Path, progress: Progress) -> Payload:
    """Look at a file or folder and compute its checksums."""
    found = find_payload(path)
    files = tuple(
        PayloadFile(**dict(file), sha256=cached_sha256(file.local, progress))
        for file in found.files
    )
    sha256 = files[0].sha256
    if not found.local.is_file():
        lines = [f"{file.name}\0{file.sha256}\0{file.executable}\n" for file in files]
        sha256 = hashlib.sha256("".join(lines).encode()).hexdigest()
    return Payload(name=found.name, local=found.local, sha256=sha256, files=files)


def _files(folder: Path) -> Iterator[Path]:
    seen = set()
    for name, folders, files in os.walk(folder, followlinks=True):
        real = os.path.realpath(name)
        if real in seen:  # a link to a folder above
            folders.clear()
            continue
        seen.add(real)
        for file in files:
            path = Path(name, file)
            if path.is_file():
                yield path


def _found_file(name: PurePosixPath, file: Path) -> FoundFile:
    require_utf_8(name)
    if OWN_FOLDER in name.parts:
        raise UsageError(
            f"{file}: the name {OWN_FOLDER} is reserved for armload's own files on the board.",
            "Rename or remove it.",
        )
    return FoundFile(
        name=name, local=file, size_bytes=file.stat().st_size, executable=os.access(file, os.X_OK)
    )
