"""s2n-tls and the libcrypto of AWS-LC, compiled for what of armload's own programs ends TLS."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from armload.build.archive import Archive, EngineProject
from armload.build.backend import BuildRequest, overlay_folder
from armload.build.local_backend import LocalBackend
from armload.build.source import pinned_source
from armload.build.target import Target
from armload.core.files import sha256_of, written_in
from armload.core.locks import locked
from armload.core.progress import Progress
from armload.core.values import Value
from armload.core.workspace import compiling_folder

_PROJECT: EngineProject = "s2n-tls"
_LIBRARIES = ("libs2n.a", "libcrypto.a")
"""In the order of linking."""


class TlsLibrary(Value):
    """Libraries that lie in the cache.

    Attributes:
        library_id: of all that decides their bytes.
        folder: holds them, and the headers in ``include``.
    """

    library_id: str
    folder: Path

    @property
    def compiler_flags(self) -> tuple[str, ...]:
        return ("-DARMLOAD_TLS", f"-I{self.folder / 'include'}")

    @property
    def linker_flags(self) -> tuple[str, ...]:
        return (*(str(self.folder / name) for name in _LIBRARIES), "-Wl,--gc-sections")


def tls_library_id(target: Target) -> str:
    """Return the id that the libraries have for a target, whether they are there or not."""
    source = pinned_source(_PROJECT)
    project = overlay_folder(_PROJECT) / "CMakeLists.txt"
    parts = (source.identity, sha256_of(project), LocalBackend().compiler(target).identity)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def tls_library(target: Target, progress: Progress) -> TlsLibrary:
    """Return the libraries for every CPU of an architecture; compile them when they are not there.

    That takes minutes, once.

    Raises:
        BuildError: the source cannot be fetched, or does not compile.
    """
    library_id = tls_library_id(target)
    place = compiling_folder("helpers") / library_id
    library = TlsLibrary(library_id=library_id, folder=place)
    if not place.is_dir():
        lock = place.with_name(f"{library_id}.lock")
        words = "Another armload process is compiling the TLS library. Waiting for it."
        with written_in(place.parent), locked(lock, progress, waiting=words) as held:
            if not place.is_dir():
                _compile(pinned_source(_PROJECT), target, place, held, progress)
            lock.unlink(missing_ok=True)
    return library


def _compile(source: Archive, target: Target, place: Path, lock: int, progress: Progress) -> None:
    folder = source.provide(progress)
    backend = LocalBackend()
    # Continued where it was interrupted.
    work = place.with_name(f"{place.name}.partial")
    work.mkdir(parents=True, exist_ok=True)
    request = BuildRequest(
        build_id=place.name,
        target=target,
        cpu_flags=(),
        engine=_PROJECT,
        source=folder,
        engine_commit="",
        programs=_LIBRARIES,
        folder=work,
        lock=lock,
    )
    made = backend.compile(request, backend.compiler(target), progress)
    whole = work / "whole"
    shutil.rmtree(whole, ignore_errors=True)
    (whole / "include").mkdir(parents=True)
    for path in made.values():
        shutil.copyfile(path, whole / path.name)
    shutil.copyfile(folder / "s2n" / "api" / "s2n.h", whole / "include" / "s2n.h")
    headers = folder / "aws-lc" / "include" / "openssl"
    shutil.copytree(headers, whole / "include" / "openssl")
    whole.replace(place)
    shutil.rmtree(work, ignore_errors=True)
