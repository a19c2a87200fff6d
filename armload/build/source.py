"""Where the engine's source comes from: a pinned archive from the package index, or a folder."""

from __future__ import annotations

import hashlib
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from armload.build.archive import unpacked
from armload.core.errors import UsageError
from armload.core.progress import Progress
from armload.core.values import Value
from armload.core.workspace import cache_folder
from armload.core.yamlfile import load_named

_PINNED = "llama-cpp"
MAIN_PROGRAMS = ("llama-completion", "llama-cli")
"""Programs that continue a prompt; the first that a source has is the one for measuring."""


class Archive(Value):
    """A Python project's source archive: what ``toolchains/sources/<name>.yaml`` says.

    Attributes:
        name: the file's name.
        project: its name in the package index.
        version: of the project.
        sha256: of the archive, 64 hexadecimal digits.
        folder: of llama.cpp inside the archive.
    """

    name: str
    project: str
    version: str
    sha256: str
    folder: str

    @property
    def label(self) -> str:
        """Name and version for people."""
        return f"{self.project} {self.version}"

    @property
    def identity(self) -> str:
        """Says which content it is."""
        return f"sha256:{self.sha256}/{self.folder}"

    def provide(self, progress: Progress) -> Path:
        """Fetch and unpack the archive, unless that is done, and return llama.cpp's folder.

        Raises:
            BuildError: the index does not have it or does not answer, or the checksum is wrong.
        """
        place = cache_folder() / "sources" / f"{self.project}-{self.version}-{self.sha256[:12]}"
        return unpacked(self, place, progress)


class Folder(Value):
    """A folder of llama.cpp on this machine, known by its files' names, sizes and times."""

    path: Path

    @property
    def label(self) -> str:
        """The folder's path."""
        return str(self.path)

    @property
    def identity(self) -> str:
        """Says which content it is."""
        digest = hashlib.sha256()
        for part in (
            "CMakeLists.txt",
            "cmake",
            "common",
            "ggml",
            "include",
            "src",
            "tools",
            "vendor",
        ):
            top = self.path / part
            for file in sorted(top.rglob("*")) if top.is_dir() else [top]:
                if file.is_file():
                    status = file.stat()
                    entry = f"{file.relative_to(self.path)}\0{status.st_size}\0{status.st_mtime_ns}"
                    digest.update(entry.encode() + b"\n")
        return f"folder:{self.path}:{digest.hexdigest()}"

    def provide(self, progress: Progress) -> Path:
        """Return the folder."""
        del progress
        return self.path


Source = Archive | Folder


def pinned_source() -> Archive:
    """Read the pinned source, ``toolchains/sources/llama-cpp.yaml``.

    Raises:
        DataError: its file is malformed.
    """
    return load_named("toolchains/sources", _PINNED, Archive)


def folder_source(path: Path) -> Folder:
    """Return a folder as a source.

    Raises:
        UsageError: it holds no llama.cpp.
    """
    source = Folder(path=path.absolute())
    if not (source.path / "include" / "llama.h").is_file():
        raise UsageError(
            f"{source.path}: this folder holds no llama.cpp: there is no include/llama.h.",
            "Name the top folder of llama.cpp's source.",
        )
    return source


def programs_offered(folder: Path) -> list[str]:
    """Return the names of the programs that a llama.cpp folder can build, sorted."""
    names = set()
    for file in (folder / "tools").rglob("CMakeLists.txt"):
        names.update(_executables(file.read_text(encoding="utf-8")))
    return sorted(names)


def _executables(cmake: str) -> list[str]:
    """Return the names in ``add_executable``, with ``set(TARGET name)`` before it followed."""
    names = []
    target = ""
    for match in re.finditer(r"(set|add_executable)\(\s*(\S+?)\s*(?:\s([^\s)]+))?[\s)]", cmake):
        command, first, second = match.groups()
        if command == "set":
            target = second if first == "TARGET" and second else target
        else:
            names.append(target if first == "${TARGET}" else first)
    return names


def programs_chosen(folder: Path, wanted: Sequence[str]) -> list[str]:
    """Return the programs to build: those wanted, or the one for measuring.

    Raises:
        UsageError: the source does not have one of them.
    """
    offered = programs_offered(folder)
    if not wanted:
        wanted = [program for program in MAIN_PROGRAMS if program in offered][:1]
        if not wanted:
            raise UsageError(
                f"{folder}: this llama.cpp has none of {', '.join(MAIN_PROGRAMS)}.",
                f"It has: {', '.join(offered)}.",
            )
    for program in wanted:
        if program not in offered:
            raise UsageError(
                f"{folder}: this llama.cpp has no program {program!r}.",
                f"It has: {', '.join(offered)}.",
            )
    return sorted(set(wanted))


def engine_commit(source: Source, folder: Path) -> str:
    """Return upstream's commit or version, as the source itself says it."""
    if (folder / ".git").exists():
        asked = subprocess.run(
            ["git", "-C", str(folder), "rev-parse", "--short=12", "HEAD"],
            capture_output=True,
            text=True,
            check=False,
        )
        if asked.returncode == 0:
            return asked.stdout.strip()
    cmake = (folder / "CMakeLists.txt").read_text(encoding="utf-8")
    numbers = re.findall(r"^set\(LLAMA_VERSION_(?:MAJOR|MINOR|PATCH) +(\d+)\)", cmake, re.MULTILINE)
    if len(numbers) == 3:
        is_dev = re.search(r"option\(LLAMA_BUILD_IS_DEV .* ON\)", cmake) is not None
        return ".".join(numbers) + ("-dev" if is_dev else "")
    if isinstance(source, Archive):
        return f"{source.project}-{source.version}"
    return "unknown"


def choose(folder: str) -> Source:
    """Return a folder as a source, or the pinned source where the name is empty.

    Raises:
        UsageError: the folder holds no llama.cpp.
    """
    return folder_source(Path(folder).expanduser()) if folder else pinned_source()
