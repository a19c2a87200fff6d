"""Where the engine's source comes from: a pinned archive, a git repository, or a folder."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from contextlib import suppress
from pathlib import Path

from armload.build.archive import Archive, EngineProject
from armload.build.binary import Binary, engine_name
from armload.build.commit import Commit
from armload.build.git import git
from armload.build.repository import Address, address_of, commit_of, shown
from armload.core.defaults import LIBRARIES
from armload.core.errors import UsageError
from armload.core.files import require_utf_8
from armload.core.near_names import nearest_first
from armload.core.progress import Progress
from armload.core.values import Value
from armload.core.workspace import data_names, spelled_name
from armload.core.yamlfile import load_named

_KIND = "toolchains/sources"
_PINNED = "llama-cpp"
BUILT_EXAMPLES = ("examples/embedding", "examples/speculative-simple")
BUILT_PARTS = (
    "CMakeLists.txt",
    "LICENSE",
    "app",
    "cmake",
    "common",
    *BUILT_EXAMPLES,
    "ggml",
    "include",
    "licenses",
    "src",
    "tools",
    "vendor",
)
"""What of an engine takes part in a build; the rest is tests, papers and Python."""


class Folder(Value):
    """A folder of llama.cpp on this machine, known by its files' names, sizes and times."""

    path: Path

    @property
    def label(self) -> str:
        return str(self.path)

    @property
    def commit(self) -> str:
        """The commit that is checked out, as ``Binary`` has it; empty where there is none."""
        if not (self.path / ".git").exists() or not shutil.which("git"):
            return ""
        commit = self._git("rev-parse", "--short=12", "HEAD")
        is_whole = self._git("rev-parse", "--is-shallow-repository") == "false"
        number = self._git("rev-list", "--count", "HEAD") if commit and is_whole else ""
        return f"b{number}-{commit}" if number else commit

    @property
    def identity(self) -> str:
        """Says which content it is, and what the engine calls itself."""
        digest = hashlib.sha256()
        for part in BUILT_PARTS:
            top = self.path / part
            for file in sorted(top.rglob("*")) if top.is_dir() else [top]:
                if file.is_file():
                    status = file.stat()
                    entry = f"{file.relative_to(self.path)}\0{status.st_size}\0{status.st_mtime_ns}"
                    digest.update(os.fsencode(entry) + b"\n")
        return ":".join(filter(None, ["folder", str(self.path), digest.hexdigest(), self.commit]))

    def provide(self, progress: Progress) -> Path:
        del progress
        return self.path

    def _git(self, *words: str) -> str:
        """Return what git says of the folder; empty where it fails."""
        parent = {"GIT_CEILING_DIRECTORIES": str(self.path.parent)}
        asked = git(words, folder=self.path, environment=parent)
        return asked.output.strip() if asked.status == 0 else ""


Source = Archive | Folder | Commit


def pinned_source(project: EngineProject = "llama.cpp") -> Archive:
    """Read the pinned source of a project, such as ``toolchains/sources/llama-cpp.yaml``."""
    return load_named(_KIND, project.replace(".", "-"), Archive)


def project_of(source: Source) -> EngineProject:
    """Say whose source it is; folders and repositories are llama.cpp's."""
    return source.engine if isinstance(source, Archive) else "llama.cpp"


def engine_of(binary: Binary) -> str:
    """Return what people call a program's engine."""
    return engine_name(binary.source, binary.engine_commit)


def folder_source(path: Path) -> Folder:
    source = Folder(path=path.absolute())
    if not (source.path / "include" / "llama.h").is_file():
        raise UsageError(
            f"{source.path}: this folder does not contain llama.cpp: there is no include/llama.h.",
            "Give the top folder of llama.cpp's source.",
        )
    return source


def engine_commit(source: Source, folder: Path) -> str:
    """Return upstream's build number and commit, or its version, as ``Binary`` has them."""
    if isinstance(source, Commit):
        return source.commit[:12]
    if isinstance(source, Archive) and source.commit:
        number = f"b{source.build_number}-" if source.build_number else ""
        return f"{number}{source.commit[:12]}"
    if isinstance(source, Folder) and (commit := source.commit):
        return commit
    cmake = (folder / "CMakeLists.txt").read_text(encoding="utf-8")
    numbers = re.findall(r"^set\(LLAMA_VERSION_(?:MAJOR|MINOR|PATCH) +(\d+)\)", cmake, re.MULTILINE)
    if len(numbers) == 3:
        is_dev = re.search(r"option\(LLAMA_BUILD_IS_DEV .* ON\)", cmake) is not None
        return ".".join(numbers) + ("-dev" if is_dev else "")
    if isinstance(source, Archive):
        return f"{source.project}-{source.version}"
    return "unknown"


def known_architectures(folder: Path) -> tuple[str, ...]:
    """Return the architectures of models that a source knows; none where it does not say."""
    with suppress(OSError, UnicodeDecodeError):
        text = (folder / "src" / "llama-arch.cpp").read_text(encoding="utf-8")
        names = re.search(r"LLM_ARCH_NAMES = \{$(.*?)^\};", text, re.MULTILINE | re.DOTALL)
        if names is not None:
            return tuple(re.findall(r"\{\s*LLM_ARCH_\w+,\s*\"([\w.-]+)\"\s*\}", names[1]))
    return ()


def choose(name: str, *, ref: str, progress: Progress) -> Source:
    """Return the source that a person named.

    Args:
        name: a file in ``toolchains/sources``, a folder of llama.cpp, or the address of a git
            repository; empty for the pinned source. A name without a slash is a file first.
        ref: a branch, tag or commit of a repository, or of a folder that is one; empty for a
            repository's default branch, and for a folder as it lies there.

    Raises:
        UsageError: it is none of them, or there is no such ref.
    """
    if not name or spelled_name(_KIND, name) in data_names(_KIND):
        if ref:
            raise UsageError(
                f"--ref {ref}: the source {name or _PINNED!r} is an archive; --ref needs a "
                "repository.",
                "Add one: --source https://github.com/ggml-org/llama.cpp",
            )
        archive = load_named(_KIND, name or _PINNED, Archive)
        if archive.engine in LIBRARIES:
            raise UsageError(
                f"--source {name}: {archive.label} is a library of armload's own programs, not an "
                "engine.",
                "Omit --source for armload's llama.cpp.",
            )
        return archive
    folder = Path(name).expanduser() if name.startswith("~/") else Path(name)
    if _is_folder(folder):
        require_utf_8(folder.resolve())  # it is recorded with what is built
        if not ref:
            return folder_source(folder)
        path = folder.resolve()
        address: Address | None = Address(url=path.as_uri(), shown=str(path))
    else:
        address = address_of(name)
    if address is None:
        files = nearest_first(name, [each for each in data_names(_KIND) if each not in LIBRARIES])
        raise UsageError(
            f"--source {shown(name)}: this is neither a source file, nor a folder, nor the "
            "address of a git repository.",
            f"Give a source file ({files}), a folder of llama.cpp, or a repository such as "
            "https://github.com/ggml-org/llama.cpp with --ref BRANCH, TAG or COMMIT.",
        )
    return Commit(address=address, commit=commit_of(address, ref, progress))


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # too long for a name
        return False
