"""Fetches a source archive from the package index and unpacks llama.cpp from it."""

from __future__ import annotations

import shutil
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Protocol

from armload.build.index import package_index, trusted_certificates, without_login
from armload.core.errors import BuildError
from armload.core.files import is_refusal, sha256_of, written_whole
from armload.core.locks import locked
from armload.core.progress import Progress, ProgressStep

if TYPE_CHECKING:
    from pypi_simple import ProgressTracker


class Wanted(Protocol):
    """The archive to fetch; see ``Archive``."""

    @property
    def project(self) -> str:
        """Its name in the package index."""

    @property
    def version(self) -> str:
        """Of the project."""

    @property
    def sha256(self) -> str:
        """Of the archive."""

    @property
    def folder(self) -> str:
        """The folder inside the archive that is wanted."""


def unpacked(wanted: Wanted, place: Path, progress: Progress) -> Path:
    """Return ``place``, filled with the wanted folder; fetch and unpack it when it is not there.

    Raises:
        BuildError: the index does not have it or does not answer, or the checksum is wrong.
    """
    if place.is_dir():
        return place
    words = f"Another command fetches {wanted.project} {wanted.version}."
    lock = place.with_name(f"{place.name}.lock")
    with locked(lock, progress, waiting=words):
        try:
            return _filled(wanted, place, progress)
        finally:
            lock.unlink(missing_ok=True)


def _filled(wanted: Wanted, place: Path, progress: Progress) -> Path:
    if place.is_dir():
        return place
    archive = place.parent / f"{wanted.project}-{wanted.version}.tar.gz"
    if not (archive.is_file() and sha256_of(archive) == wanted.sha256):
        fetch(wanted, archive, progress)
    unpack(archive, wanted.folder, place, progress)
    archive.unlink(missing_ok=True)
    return place


def fetch(wanted: Wanted, path: Path, progress: Progress) -> None:
    """Download the archive to ``path``, whole and with the right checksum, or not at all.

    Raises:
        BuildError: the index does not have it or does not answer, or the checksum is wrong.
    """
    from pypi_simple import NoSuchProjectError, PyPISimple, UnsupportedRepoVersionError
    from requests import RequestException
    from requests.exceptions import InvalidURL

    label = f"{wanted.project} {wanted.version}"
    index = package_index()
    try:
        with PyPISimple(index) if index else PyPISimple() as client:
            client.s.verify = trusted_certificates() or True
            page = client.get_project_page(wanted.project, timeout=30)
            found = [
                package
                for package in page.packages
                if package.version == wanted.version and package.package_type == "sdist"
            ]
            if not found:
                raise BuildError(
                    f"The package index at {without_login(client.endpoint)} has no source "
                    f"archive of {label}.",
                    "Check pip's index-url, or use a folder as the source.",
                )
            with (
                written_whole(path) as beside,
                progress.step(f"Fetching {label}", unit="B") as step,
            ):
                client.download_package(
                    found[0], beside, verify=False, timeout=30, progress=_shown(step)
                )
                _check(beside, wanted, label)
    except NoSuchProjectError as error:
        raise BuildError(
            f"The package index has no project {wanted.project!r}.",
            "Check pip's index-url, or use a folder as the source.",
        ) from error
    except InvalidURL as error:  # whose words may quote half a password
        raise BuildError(
            "The package index's address is malformed.",
            "Check pip's index-url; in a user name or password, write %2F for / and %40 for @.",
        ) from error
    except (RequestException, UnsupportedRepoVersionError, ValueError) as error:
        raise BuildError(
            f"Cannot fetch {label} from the package index: {without_login(str(error))}.",
            "Check the network and pip's index-url and cert, then repeat the command.",
        ) from error


def _shown(step: ProgressStep) -> Callable[[int | None], ProgressTracker]:
    class Tracker:
        def __init__(self, total: int | None) -> None:
            self._total = total
            self._done = 0

        def __enter__(self) -> Tracker:
            return self

        def __exit__(self, *error: object) -> None:
            pass

        def update(self, increment: int) -> None:
            self._done += increment
            step.update(self._done, total=self._total)

    return Tracker


def _check(file: Path, wanted: Wanted, label: str) -> None:
    actual = sha256_of(file)
    if actual != wanted.sha256:
        raise BuildError(
            f"The source archive of {label} has the SHA-256 {actual}, and {wanted.sha256} "
            "was expected.",
            "It was changed or damaged in transit and has been deleted. Try again; if it happens "
            "again, do not use that index.",
        )


def unpack(archive: Path, folder: str, place: Path, progress: Progress) -> None:
    """Unpack ``folder`` from inside the archive's top folder to ``place``, whole or not at all.

    Raises:
        BuildError: the archive is damaged, tries to write elsewhere, or lacks that folder.
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
                inner = _inside(member.name, folder)
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
        beside.chmod(0o755)
        beside.replace(place)
    except (tarfile.TarError, EOFError, OSError) as error:
        if isinstance(error, OSError) and is_refusal(error):
            raise  # whoever builds says which folder is full
        raise BuildError(f"{archive}: cannot be unpacked: {error}.") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _inside(name: str, folder: str) -> PurePosixPath | None:
    """Return the member's path below ``<top>/<folder>``; none when it is not there."""
    path = PurePosixPath(*PurePosixPath(name).parts[1:])
    return path.relative_to(folder) if path.is_relative_to(folder) else None
