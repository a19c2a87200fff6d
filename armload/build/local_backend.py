"""This machine as the place where the compiler runs: CMake and ninja, and how far they are."""

from __future__ import annotations

import platform
import re
import shlex
import shutil
import subprocess
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from armload.build.backend import (
    BuildRequest,
    definitions,
    environment,
    native_folder,
    overlay_folder,
)
from armload.build.compiler import Compiler, compiler_name, find_compiler, tool
from armload.build.environment import bare_environment
from armload.build.target import Target
from armload.build.vulkan import VulkanTools
from armload.core.children import run_watched
from armload.core.errors import ArmloadError, BuildError, DiskError
from armload.core.files import write_whole
from armload.core.progress import Progress
from armload.core.workspace import compiling_folder

LOG_LINES_SHOWN = 30
FULL_DISK_BYTES = 16 << 20
"""With less free space than this a failure is put down to it: compilers rarely say so."""

_HEADERS_BYTES = 45_000
"""What the headers of a file weigh. Over the times of a whole build of llama.cpp by zig, a line
through bytes and seconds has its zero there."""

_LINKING_BYTES = 1_000
_PATIENCE_S = 10.0


class Status(NamedTuple):
    """A status line of ninja."""

    done: int
    total: int
    output: str

    @property
    def what(self) -> str:
        return self.output.rpartition("/")[2].removesuffix(".o")


def read_status(line: str) -> Status | None:
    """Read a line such as ``[3/137] Building CXX object common.dir/chat.cpp.o``; none if other.

    CMake's makefiles say ``[ 12%]`` instead: these count in hundredths.
    """
    match = re.fullmatch(r"\[ *(\d+)(?:/(\d+)|%)\] (.*)", line.rstrip())
    if match is None:
        return None
    output = re.sub(r"^(Building|Linking) \w+ (\w+ library|\w+) ", "", match.group(3))
    return Status(done=int(match.group(1)), total=int(match.group(2) or 100), output=output)


def run_logged(
    command: Sequence[str],
    *,
    log: Path,
    environment: Mapping[str, str],
    nice: int,
    watch: Callable[[str], None],
    keep_open: int,
) -> None:
    """Run a program, append its output to ``log``, and show each line to ``watch``.

    When this is interrupted, the program and its children are ended first. ``environment`` holds
    all their variables. ``nice`` is how much they step back for other programs, 0 to 19.
    ``keep_open`` is a file descriptor that they inherit: a lock that is held as long as one of
    them lives.
    """
    tail: deque[str] = deque(maxlen=LOG_LINES_SHOWN)
    with log.open("a", encoding="utf-8") as file:

        def note(line: str) -> None:
            file.write(line)
            file.flush()
            tail.append(line.rstrip())
            watch(line)

        status = run_watched(
            command, environment=environment, watch=note, keep_open=keep_open, nice=nice
        )
    if status != 0:
        raise failure(Path(command[0]).name, status, list(tail), log)


def failure(program: str, status: int, tail: Sequence[str], log: Path) -> ArmloadError:
    """Return the error for a program that failed; ``tail`` is the end of what ``log`` holds."""
    shown = "\n".join(f"  {line}" for line in tail)
    is_full = shutil.disk_usage(log.parent).free < FULL_DISK_BYTES
    if is_full or "No space left on device" in shown:
        return DiskError(
            f"The disk with {log.parent} is full.",
            "Free disk space (a build takes some 500 MB, source and compiler cache included) or "
            "set ARMLOAD_CACHE to a folder on another disk, then repeat the command: it resumes "
            "from here.",
        )
    return BuildError(
        f"{program} failed with status {status}. The end of its output:\n{shown}",
        f"The full output is in {log}.",
    )


class LocalBackend:
    """Compiles on this machine.

    Args:
        compiler: its kind: ``zig``, ``gnu`` or ``native``.
        jobs: compilers at a time; none for one per core.
        nice: how much they step back for other programs, 0 to 19.
        vulkan: to make programs for GPUs; none for static ones.

    Raises:
        UsageError: there is no compiler of that kind.
    """

    def __init__(
        self,
        compiler: str = "zig",
        *,
        jobs: int | None = None,
        nice: int = 0,
        vulkan: VulkanTools | None = None,
    ) -> None:
        self._compiler = compiler_name(compiler)
        self._jobs = jobs
        self._nice = nice
        self._vulkan = vulkan

    @property
    def name(self) -> str:
        return f"this machine ({platform.system()} {platform.machine()})"

    @property
    def tools(self) -> Mapping[str, str]:
        """Versions of the CMake and the ninja that came with armload."""
        return {name: metadata.version(name) for name in ("cmake", "ninja")}

    def compiler(self, target: Target) -> Compiler:
        return find_compiler(self._compiler, target, self._vulkan)

    def compile(
        self, request: BuildRequest, compiler: Compiler, progress: Progress
    ) -> Mapping[str, Path]:
        tree = request.folder / "tree"
        self._configure(request, compiler, tree, progress)
        jobs = [f"-j{self._jobs}"] if self._jobs else []
        command = [_ninja(), "-C", str(tree), *jobs, *request.programs]
        # What ninja would make; nothing where it cannot say so.
        planned = subprocess.run(
            [*command, "-n"],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            env=self._environment(request, compiler),
            check=False,
        )
        statuses = map(read_status, planned.stdout.splitlines())
        outputs = [status.output for status in statuses if status is not None]
        weights = StepWeights(outputs, request.source, tree)
        with progress.step(request.label) as step:

            def watch(line: str) -> None:
                status = read_status(line)
                if status is not None:
                    count = {"done": status.done, "total": status.total}
                    done, total = weights.after(status.output, **count)
                    note = f"{status.done} of {status.total} steps: {status.what}"
                    step.update(done, total=total, note=note)

            self._run(command, request, compiler, watch)
        # The objects stay for further programs; zig's own copies of them are far larger.
        shutil.rmtree(tree / "zig", ignore_errors=True)
        return {program: tree / "bin" / program for program in request.programs}

    def _configure(
        self, request: BuildRequest, compiler: Compiler, tree: Path, progress: Progress
    ) -> None:
        """Make the tree ready for ninja, unless an earlier build has left it so."""
        if request.is_commit:
            # Below the tree, a path is the same to ccache in every build.
            tree.mkdir(parents=True, exist_ok=True)
            (tree / "source").unlink(missing_ok=True)
            (tree / "source").symlink_to(request.source)
        record = tree / "configured"
        former = record.read_text(encoding="utf-8") if record.is_file() else ""
        # Objects that were compiled without ccache are none the worse for it.
        commands = [_configuring(request, compiler, tree, ccache) for ccache in (_ccache(), "")]
        if former in map(shlex.join, commands):
            return
        with progress.step(f"Configuring for {request.target.name}") as step:
            lines = 0
            if "ziglang" in compiler.tools:
                step.update(
                    lines, note="first build with zig: also compiles the C and C++ libraries"
                )

            def watch(line: str) -> None:
                nonlocal lines
                lines += 1
                step.update(lines, note=line.strip().removeprefix("-- ")[:60])

            self._run(commands[0], request, compiler, watch)
        write_whole(record, shlex.join(commands[0]).encode())

    def _run(
        self,
        command: Sequence[str],
        request: BuildRequest,
        compiler: Compiler,
        watch: Callable[[str], None],
    ) -> None:
        run_logged(
            command,
            log=request.log,
            environment=self._environment(request, compiler),
            nice=self._nice,
            watch=watch,
            keep_open=request.lock,
        )

    def _environment(self, request: BuildRequest, compiler: Compiler) -> Mapping[str, str]:
        tree = request.folder / "tree"
        folder = compiling_folder("ccache")
        own = environment(compiler, tree, ccache=_ccache(), ccache_folder=folder)
        return {**bare_environment(), **own}


def _configuring(request: BuildRequest, compiler: Compiler, tree: Path, ccache: str) -> list[str]:
    source = tree / "source" if request.is_commit else request.source
    variables = definitions(request, compiler, source=source, native=native_folder(), ccache=ccache)
    return [
        str(tool("cmake", "CMAKE_BIN_DIR", "cmake")),
        # Settings of another installation of armload may be there.
        "--fresh",
        *("-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={_ninja()}"),
        *("-S", str(overlay_folder(request.engine)), "-B", str(tree)),
        *(f"-D{name}={value}" for name, value in variables.items()),
    ]


def _ccache() -> str:
    """Return the whole path of this machine's ccache; empty where there is none that works."""
    found = shutil.which("ccache")
    program = str(Path(found).absolute()) if found else ""
    return program if program and _is_ccache(program) else ""


@cache
def _is_ccache(program: str) -> bool:
    with suppress(OSError, subprocess.TimeoutExpired):
        asked = subprocess.run(
            [program, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=bare_environment(),
            timeout=_PATIENCE_S,
            check=False,
        )
        return asked.stdout.startswith(b"ccache version")
    return False


def _ninja() -> str:
    return str(tool("ninja", "BIN_DIR", "ninja"))


class StepWeights:
    """What the steps of a build weigh, in bytes of source.

    Args:
        outputs: of all steps, as ninja names them.
        source: of the engine.
        tree: that is built in.
    """

    def __init__(self, outputs: Iterable[str], source: Path, tree: Path) -> None:
        self._bytes = {each: _weight(each, source, tree) for each in outputs}
        self._done: set[str] = set()

    def after(self, output: str, *, done: int, total: int) -> tuple[int, int]:
        """Note that a step is done, and return what those that are and all steps weigh.

        Args:
            done, total: numbers of steps, which count where not all of them were foreseen.
        """
        if len(self._bytes) < total:
            return done, total
        self._done.add(output)
        return sum(self._bytes.get(each, 0) for each in self._done), sum(self._bytes.values())


def _weight(output: str, source: Path, tree: Path) -> int:
    folder, is_object, name = output.partition(".dir/")
    if not is_object:
        return _LINKING_BYTES
    file = name.removesuffix(".o")
    beside = folder.rpartition("CMakeFiles/")[0].removeprefix("llama.cpp/")
    grouped = tree / "together" / Path(file).name
    if grouped.is_file():
        parts = re.findall(r'#include "(.+)"', grouped.read_text(encoding="utf-8"))
        return _HEADERS_BYTES + sum(map(_size, map(Path, parts)))
    return _HEADERS_BYTES + _size(source / beside / file.replace("__/", "../"))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # one of ours, which are small, or made by the build
        return 0
