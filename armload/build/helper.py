"""Small static programs of ours that help on a board, compiled unless the release carries them.

What of them ends TLS is linked to s2n-tls and the libcrypto of AWS-LC.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from armload.build.archive import Archive, EngineProject
from armload.build.backend import BuildRequest, native_folder, overlay_folder
from armload.build.environment import bare_environment
from armload.build.inspection import check, inspect
from armload.build.local_backend import LocalBackend
from armload.build.prebuilt import copy_prebuilt_helper
from armload.build.source import pinned_source
from armload.build.stripping import strip
from armload.build.target import Target
from armload.build.zig import find_zig
from armload.core.errors import BuildError
from armload.core.files import sha256_of, written_in, written_whole
from armload.core.locks import locked
from armload.core.places import cache_folder, data_path
from armload.core.progress import Progress, Silent
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
                _compile_libraries(pinned_source(_PROJECT), target, place, held, progress)
            lock.unlink(missing_ok=True)
    return library


def _compile_libraries(
    source: Archive, target: Target, place: Path, lock: int, progress: Progress
) -> None:
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


SHA256 = "sha256"
CPU_FEATURES = "cpu_features"
RATES = "rates"
PIN = "pin"
WATCH = "watch"
MONITOR = "monitor"
CLOCK = "clock"
LINK = "link"
SUPERVISE = "supervise"

# They run on every CPU of the architecture. What they use beyond that, they ask for first.
_ANY_CPU = {
    "aarch64": Target(name="any aarch64", cpu="generic", features=("sha2",)),
    "x86_64": Target(name="any x86_64", architecture="x86_64", cpu="x86_64"),
}
_OF_TLS = ("aes", "pmull", "rng", "sha1", "sha3", "sha512", "ilrcpc", "sve")
"""Features of CPUs that the TLS library asks the kernel for before it uses them. For the last two,
it has no code: words of a text among its assembly look like their instructions."""

ARCHITECTURES = tuple(_ANY_CPU)
_COMPILED_WITHIN_S = 1800
"""The first one takes minutes on a busy machine, as zig compiles its C library for it."""

_FLAGS = ("-std=c11", "-O2", "-static", "-Wall", "-Wextra", "-Werror")


class Helper(Value):
    """A program of ours for boards.

    Attributes:
        name: of the program.
        path: the file on this machine.
        sha256: of the file, 64 hexadecimal digits.
    """

    name: str
    path: Path
    sha256: str


def helper(
    name: str,
    progress: Progress | None = None,
    *,
    architecture: str = "aarch64",
    with_tls: bool = False,
) -> Helper:
    """Return the program of ``toolchains/board/<name>.c``; compile it when it is not there.

    It is addressed by its source, the headers that it may use and its compiler, inspected like
    every binary, and copied from what came with the release where that has it.

    Args:
        with_tls: with the TLS library, whose first compilation takes minutes.
    """
    source = data_path("toolchains", "board", f"{name}.c")
    target = _ANY_CPU[architecture]
    progress = progress or Silent()
    folders = (source.parent, native_folder())
    parts = (source, *(path for folder in folders for path in sorted(folder.glob("*.h"))))
    library = [tls_library_id(target)] if with_tls else []
    inputs = "\0".join((*map(sha256_of, parts), find_zig(target).identity, *_FLAGS, *library))
    helper_id = hashlib.sha256(inputs.encode()).hexdigest()[:12]
    place = cache_folder() / "helpers" / helper_id / name
    if not os.access(place, os.X_OK) and not copy_prebuilt_helper(
        helper_id, name, target, place, progress
    ):
        compiler, words = any_cpu_compiler(architecture), []
        if with_tls:
            made = tls_library(target, progress)
            compiler, words = [*compiler, *made.compiler_flags], [*made.linker_flags]
            target = target.model_copy(update={"features": (*target.features, *_OF_TLS)})
        with progress.step(f"Compiling a helper program for {architecture} boards (only once)"):
            _compile(source, target, compiler, place, words)
    return Helper(name=name, path=place, sha256=sha256_of(place))


def any_cpu_compiler(architecture: str) -> list[str]:
    """Return the command that compiles C for every CPU of an architecture, without files.

    No CPU is named: zig's own choice is every CPU, and under another name of the same one it would
    compile its C library once more than for the engine.
    """
    target = _ANY_CPU[architecture]
    return [find_zig(target).definitions(target)["CMAKE_C_COMPILER"], *_FLAGS]


def _compile(
    source: Path, target: Target, compiler: list[str], place: Path, libraries: Sequence[str]
) -> None:
    with tempfile.TemporaryDirectory() as name, written_whole(place) as beside:
        made = Path(name) / source.stem
        try:
            done = subprocess.run(
                [*compiler, f"-I{native_folder()}", "-o", str(made), str(source), *libraries],
                # zig names its own files relative to a folder that contains them, and would compile
                # its C library anew for each such folder, as it would for programs without symbols.
                cwd=name,
                env=bare_environment(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                timeout=_COMPILED_WITHIN_S,
            )
        except subprocess.TimeoutExpired as error:
            raise BuildError(
                f"{source}: not compiled within {_COMPILED_WITHIN_S // 60} minutes.",
                "Repeat the command when this machine is less busy; it takes seconds.",
            ) from error
        if done.returncode != 0:
            raise BuildError(f"{source}: compilation failed: {done.stderr.strip()[-2000:]}")
        strip(made, beside)
        check(inspect(beside), target)
    place.chmod(0o755)
