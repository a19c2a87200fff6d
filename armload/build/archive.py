"""A pinned source archive, of the package index or at an address: fetched and unpacked."""

from __future__ import annotations

import hashlib
import shutil
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Literal

from armload.core.deciding import DECIDES, Words
from armload.core.download import Remote, download
from armload.core.errors import BuildError, ConnectError, TransferError
from armload.core.files import is_refusal, sha256_of
from armload.core.locks import locked
from armload.core.package_index import IndexFile, fetch
from armload.core.progress import Progress
from armload.core.values import Value
from armload.core.workspace import compiling_folder

if TYPE_CHECKING:
    from requests import Response

EngineProject = Literal["llama.cpp", "distributed-llama", "s2n-tls"]
"""Whose programs or libraries a source has; each is compiled by a CMake project of ours."""


class Archive(Value):
    """A source archive: what ``toolchains/sources/<name>.yaml`` says.

    Attributes:
        name: the file's name.
        description: what it is, for people.
        engine: the project whose source it has.
        project: its name, in the package index unless there is an address.
        version: of the project.
        address: where the archive lies; empty for the package index.
        sha256: of the archive, 64 hexadecimal digits; with an address, of the unpacked files
            (``digest_of``), because servers compress the same files anew.
        folder: of the engine inside the archive.
        commit: of the engine, from which that folder was taken; empty where nobody says.
        build_number: of upstream's release of that commit, such as 11312 of ``b11312``; 0 where
            nobody says.
        together: groups of files, by their target and their patterns, that are compiled as one
            file each, which takes a fraction of the time.
    """

    name: Words
    description: Words = ""
    engine: Annotated[EngineProject, DECIDES] = "llama.cpp"
    project: Annotated[str, DECIDES]
    version: Annotated[str, DECIDES]
    address: Words = ""
    sha256: Annotated[str, DECIDES]
    folder: Annotated[str, DECIDES] = ""
    commit: Words = ""
    build_number: int = 0
    together: Annotated[Mapping[str, tuple[tuple[str, ...], ...]], DECIDES] = {}

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups as CMake gets them: a target, a colon, and patterns with commas between."""
        return tuple(
            f"{target}:{','.join(patterns)}"
            for target, groups in self.together.items()
            for patterns in groups
        )

    @property
    def label(self) -> str:
        return f"{self.project} {self.version}"

    @property
    def identity(self) -> str:
        """Says which content it is, and how it is compiled."""
        return " +".join((f"sha256:{self.sha256}/{self.folder}", *self.groups))

    def provide(self, progress: Progress) -> Path:
        """Fetch and unpack the archive, unless that is done, and return the engine's folder."""
        place = compiling_folder("sources") / f"{self.project}-{self.version}-{self.sha256[:12]}"
        return unpacked(self, place, progress)


def unpacked(wanted: Archive, place: Path, progress: Progress) -> Path:
    """Return ``place``, filled with the wanted folder; fetch and unpack it when it is not there."""
    if place.is_dir():
        return place
    words = f"Another command is fetching {wanted.project} {wanted.version}."
    lock = place.with_name(f"{place.name}.lock")
    with locked(lock, progress, waiting=words):
        try:
            if place.is_dir():
                return place
            archive = place.parent / f"{wanted.project}-{wanted.version}.tar.gz"
            _obtain(wanted, archive, progress)
            unpack(
                *(archive, wanted.folder, place, progress),
                files_sha256=wanted.sha256 if wanted.address else "",
            )
            archive.unlink(missing_ok=True)
            return place
        finally:
            lock.unlink(missing_ok=True)


def _obtain(wanted: Archive, archive: Path, progress: Progress) -> None:
    """Download an archive, unless it lies there already."""
    instead = (
        f"put the archive at {archive}"
        if wanted.address
        else "give a folder of llama.cpp with --source"
    )
    try:
        if wanted.address:
            if not archive.is_file():
                remote = Remote(url=wanted.address, label=wanted.label, instead=instead)
                download(remote, archive, progress, _refused)
        elif not (archive.is_file() and sha256_of(archive) == wanted.sha256):
            file = IndexFile(
                project=wanted.project, version=wanted.version, kind="sdist", sha256=wanted.sha256
            )
            fetch(file, archive, progress, instead=instead)
    except (ConnectError, TransferError) as error:
        raise BuildError(error.message, error.remedy) from error


def _refused(answer: Response) -> ConnectError:
    return ConnectError(
        f"Cannot fetch the source: {answer.url} answered with HTTP {answer.status_code}.",
        "Check the network, then repeat the command.",
    )


def digest_of(folder: Path) -> str:
    """Return the SHA-256 of the names and contents of all files in a folder."""
    digest = hashlib.sha256()
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(f"{file.relative_to(folder).as_posix()}\0{sha256_of(file)}\n".encode())
    return digest.hexdigest()


def unpack(
    archive: Path, folder: str, place: Path, progress: Progress, *, files_sha256: str = ""
) -> None:
    """Unpack ``folder`` from inside the archive's top folder to ``place``, whole or not at all.

    Args:
        files_sha256: that ``digest_of`` must give; empty for an archive that was checked.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{place.name}.", dir=place.parent))
    try:
        with (
            progress.step(f"Unpacking {archive.name}", unit="files") as step,
            tarfile.open(archive) as tar,
        ):
            count = 0
            for member in tar:
                # The member's path below ``<top>/<folder>``; none when it is not there
                path = PurePosixPath(*PurePosixPath(member.name).parts[1:])
                inner = path.relative_to(folder) if path.is_relative_to(folder) else None
                if inner is None or (content := tar.extractfile(member)) is None:
                    continue
                if ".." in inner.parts:
                    raise tarfile.TarError(f"{member.name!r} lies outside the archive")
                file = beside / inner
                file.parent.mkdir(parents=True, exist_ok=True)
                with content, file.open("wb") as out:
                    shutil.copyfileobj(content, out)
                file.chmod(0o755 if member.mode & 0o100 else 0o644)
                count += 1
                step.update(count)
        if count == 0:
            raise BuildError(f"{archive}: the archive has no folder {folder!r}.")
        if files_sha256 and digest_of(beside) != files_sha256:
            archive.unlink()
            raise BuildError(
                f"{archive}: its files are not those of the pinned source. It has been deleted.",
                "Repeat the command. If it happens again, do not trust the server that it is from.",
            )
        beside.chmod(0o755)
        beside.replace(place)
    except (tarfile.TarError, EOFError, OSError) as error:
        if isinstance(error, OSError) and is_refusal(error):
            raise  # whoever builds says which folder is full
        raise BuildError(f"{archive}: cannot be unpacked: {error}.") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)
