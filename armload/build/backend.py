"""What a build asks of the machine that compiles: the request, and who can carry it out."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Protocol

from armload.build.archive import EngineProject
from armload.build.compiler import Compiler
from armload.build.environment import DECIDED, ccache_environment
from armload.build.target import Target
from armload.core.places import data_path
from armload.core.progress import Progress
from armload.core.values import Value


class BuildRequest(Value):
    """What is to be compiled, and where its files are on this machine.

    Attributes:
        build_id: of all that decides the bytes of each program.
        target: the CPU.
        cpu_flags: for the engine's CPU library alone.
        engine: whose source it is.
        source: folder of the engine.
        is_commit: it is one of many alike, which have most files in common.
        engine_commit: what the engine calls itself.
        groups: of the source's files that are compiled as one, as ``Archive`` has them.
        programs: those to compile, such as ``llama-completion``.
        folder: for the log and for what is compiled here; what an interrupted build, or one of
            other programs, left is still there.
        lock: a descriptor that every process keeps open which works in ``folder``.
    """

    build_id: str
    target: Target
    cpu_flags: tuple[str, ...]
    engine: EngineProject = "llama.cpp"
    source: Path
    engine_commit: str
    groups: tuple[str, ...] = ()
    programs: tuple[str, ...]
    folder: Path
    lock: int
    is_commit: bool = False

    @property
    def work_id(self) -> str:
        """Of the inputs and the programs: other programs of the same build are other work."""
        content = "\0".join((self.build_id, *self.programs))
        return hashlib.sha256(content.encode()).hexdigest()[: len(self.build_id)]

    @property
    def log(self) -> Path:
        """Where the output of CMake and of the compiler goes."""
        return self.folder / "build.log"

    @property
    def label(self) -> str:
        return f"Compiling {', '.join(self.programs)} for {self.target.name}"


class BuildBackend(Protocol):
    """Where the compiler runs: this machine, or another that can do the same."""

    @property
    def name(self) -> str:
        """The machine, for people."""

    @property
    def tools(self) -> Mapping[str, str]:
        """Versions of what drives the compiler there, by the tool's name."""

    def compiler(self, target: Target) -> Compiler:
        """Return the compiler that is used for a target."""

    def compile(
        self, request: BuildRequest, compiler: Compiler, progress: Progress
    ) -> Mapping[str, Path]:
        """Return the linked programs, with their symbols, by their names.

        Raises:
            BuildError: they do not compile; with the end of the compiler's output.
        """


_FOUND_NOWHERE = (
    "CMAKE_FIND_USE_CMAKE_ENVIRONMENT_PATH",
    "CMAKE_FIND_USE_CMAKE_SYSTEM_PATH",
    "CMAKE_FIND_USE_INSTALL_PREFIX",
    "CMAKE_FIND_USE_PACKAGE_REGISTRY",
    "CMAKE_FIND_USE_SYSTEM_ENVIRONMENT_PATH",
    "CMAKE_FIND_USE_SYSTEM_PACKAGE_REGISTRY",
    # Of any linker that it finds, CMake takes the compiler to be able to do what that one can.
    "CMAKE_LINK_DEPENDS_USE_LINKER",
)
"""CMake's switches that are off, or what a machine has installed would take part in a build."""


_OVERLAYS: Mapping[EngineProject, str] = {
    "llama.cpp": "overlay",
    "distributed-llama": "dllama",
    "s2n-tls": "tls",
}


def overlay_folder(engine: EngineProject = "llama.cpp") -> Path:
    """Return our CMake project, which compiles an engine's source."""
    return data_path("toolchains", _OVERLAYS[engine])


def native_folder() -> Path:
    return data_path("toolchains", "native")


def own_files(folder: Path) -> list[Path]:
    """Return the files of ours that take part in a build, sorted; what an editor left is none."""
    return sorted(
        path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")
    )


def definitions(
    request: BuildRequest, compiler: Compiler, *, source: PurePath, native: PurePath, ccache: str
) -> dict[str, str]:
    """Return CMake's variables for the overlay.

    Args:
        source: where the engine's source lies on the machine that compiles.
        native: where the trace's sources lie there.
        ccache: the program's path there; empty where there is none.
    """
    target = request.target
    variables = {
        **dict.fromkeys(_FOUND_NOWHERE, "OFF"),
        **compiler.definitions(target),
        "CMAKE_C_FLAGS": " ".join(target.cflags),
        "CMAKE_CXX_FLAGS": " ".join(target.cxxflags),
        "CMAKE_EXE_LINKER_FLAGS": " ".join(target.ldflags),
        "ARMLOAD_SOURCE": str(source),
        "ARMLOAD_NATIVE": str(native),
        "ARMLOAD_CPU_FLAGS": ";".join(request.cpu_flags),
        "ARMLOAD_ENGINE_COMMIT": request.engine_commit,
        "ARMLOAD_TOGETHER": ";".join(request.groups),
    }
    if "CMAKE_SYSTEM_NAME" in variables:
        # Whatever this machine has installed is for this machine.
        for kind in ("LIBRARY", "INCLUDE", "PACKAGE"):
            variables[f"CMAKE_FIND_ROOT_PATH_MODE_{kind}"] = "ONLY"
        variables["CMAKE_FIND_ROOT_PATH"] = str(source / "no-such-folder")
    if ccache:
        variables["CMAKE_C_COMPILER_LAUNCHER"] = ccache
        variables["CMAKE_CXX_COMPILER_LAUNCHER"] = ccache
    return variables


def environment(
    compiler: Compiler, tree: PurePath, *, ccache: str, ccache_folder: PurePath
) -> dict[str, str]:
    """Return the environment of a build in the folder ``tree``: all its variables.

    Args:
        ccache: the program's path there; empty where there is none.
        ccache_folder: what it keeps.
    """
    # zig keeps what it compiles; with ccache one copy is enough, and this one goes with the tree.
    own_cache = {"ZIG_LOCAL_CACHE_DIR": str(tree / "zig")} if ccache else {}
    return {
        **DECIDED,
        **ccache_environment(ccache_folder, tree),
        **own_cache,
        **compiler.environment(),
        "NINJA_STATUS": "[%f/%t] ",
        # Any repository further up would answer a question about the engine's commit.
        "GIT_DIR": str(tree / "no-repository"),
        # ggml would otherwise add flags for the CPU of the machine that compiles.
        "SOURCE_DATE_EPOCH": "0",
    }
