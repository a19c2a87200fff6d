"""Where a build runs: here, or on an ARM server or any machine with a compiler and CMake."""

from __future__ import annotations

import gzip
import hashlib
import re
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path, PurePosixPath

from armload.boards.board import Board, load_board
from armload.boards.connect import connect
from armload.boards.host import Host
from armload.build.archive import EngineProject
from armload.build.backend import (
    BuildBackend,
    BuildRequest,
    definitions,
    environment,
    native_folder,
    overlay_folder,
    own_files,
)
from armload.build.compiler import Compiler, compiler_name
from armload.build.local_backend import (
    FULL_DISK_BYTES,
    LOG_LINES_SHOWN,
    LocalBackend,
    failure,
    read_status,
)
from armload.build.source import BUILT_PARTS
from armload.build.system_compiler import (
    Machine,
    SystemCompilerName,
    asking_script,
    read_machine,
    read_system_compiler,
    words_for,
)
from armload.build.target import Target
from armload.build.vulkan import vulkan_tools
from armload.core.errors import (
    ArmloadError,
    BoardError,
    BuildError,
    ConnectError,
    MissingToolError,
    RunError,
    TransferError,
    UsageError,
)
from armload.core.files import sha256_of, written_whole
from armload.core.progress import Progress
from armload.core.shell import quote, render
from armload.deploy.board_runs import StoredRun, list_runs
from armload.deploy.clean import LONGEST_REMOVAL_S
from armload.deploy.follow import ProgressUpdate, follow, stop
from armload.deploy.launch import launch
from armload.deploy.layout import STDOUT_FILE, Layout
from armload.deploy.space import ask_space
from armload.deploy.transfer import push


def pack(
    source: Path, archive: Path, progress: Progress, engine: EngineProject = "llama.cpp"
) -> None:
    """Write what a build takes to ``archive``: the same files give the same bytes.

    It holds ``engine/`` (such as llama.cpp), ``overlay/`` (our CMake project) and ``native/``
    (the trace's sources).
    """
    overlay = overlay_folder(engine)
    files = [
        *(("engine", source, file) for file in _files(source)),
        *(("overlay", overlay, file) for file in own_files(overlay)),
        *(("native", native_folder(), file) for file in own_files(native_folder())),
    ]
    with (
        progress.step("Packing the source", total=len(files), unit="files") as step,
        written_whole(archive) as beside,
        beside.open("wb") as raw,
        gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=6, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for count, (name, folder, file) in enumerate(files):
            member = tarfile.TarInfo(f"{name}/{file.relative_to(folder).as_posix()}")
            with file.open("rb") as content:
                member.size = file.stat().st_size
                member.mode = 0o755 if file.stat().st_mode & 0o100 else 0o644
                tar.addfile(member, content)
            step.update(count + 1)


def _files(source: Path) -> Iterator[Path]:
    for part in BUILT_PARTS:
        top = source / part
        for file in sorted(top.rglob("*")) if top.is_dir() else [top]:
            if file.is_file():
                yield file


TIME_LIMIT_S = 6 * 3600
UNPACKING_LIMIT_S = 600.0
_DIGITS = 12
_CONTINUES = "The build continues there. Repeat the command to reattach."


def kind_there(board: Board, wanted: str) -> SystemCompilerName:
    """Return the kind of compiler that a build host takes.

    Args:
        wanted: empty for what the file says.
    """
    kind = compiler_name(wanted or board.build_host.compiler)
    if kind == "zig":
        raise UsageError(
            "zig compiles on this machine, not on a build host.",
            "Omit --on, or use --compiler native or gnu.",
        )
    return kind


class RemoteBackend:
    """A build host.

    Args:
        compiler: its kind, as ``kind_there`` gives it.
        jobs: compilers at a time; none for what the board's file says.
        nice: how much they step back for other programs; none for what the file says.
    """

    def __init__(
        self,
        host: Host,
        board: Board,
        *,
        compiler: SystemCompilerName,
        jobs: int | None,
        nice: int | None,
    ) -> None:
        settings = board.build_host
        self._host = host
        self._compiler = compiler
        self._jobs = jobs if jobs is not None else settings.jobs
        self._nice = nice if nice is not None else settings.nice
        self._folder = settings.folder or board.workdir / "build"
        self._machine = Machine(answers={})

    @property
    def name(self) -> str:
        return self._host.name

    @property
    def tools(self) -> Mapping[str, str]:
        """Versions of what drives the compiler there, known once the compiler is."""
        return self._machine.tools

    def compiler(self, target: Target) -> Compiler:
        """Return the compiler that the build host uses for a target."""
        words = words_for(self._compiler, target)
        self._machine = read_machine(self._host.run(asking_script(words)).text)
        for tool, how in ((self._machine.cmake, "cmake"), (self._machine.generator, "make")):
            if not tool:
                raise MissingToolError(
                    f"{self.name}: {how} is not installed.",
                    f"Install it there (Debian: apt install {how}).",
                )
        return read_system_compiler(self._machine, words, target, where=self.name)

    def compile(
        self, request: BuildRequest, compiler: Compiler, progress: Progress
    ) -> Mapping[str, Path]:
        """Return the linked programs, with their symbols, by their names.

        A build in progress there is followed; the programs of one that ended are fetched. Other
        workstations may be doing the same, so both stay there for a day.

        Raises:
            BuildError: they do not compile; with the end of the compiler's output.
        """
        self._prune(progress)
        parts = self._unpacked(request, progress)
        run = self._under_way(request)
        if run is None:
            run = self._started(request, compiler, parts)
        else:
            progress.say(f"{self.name}: resuming a build that is already there.")
        # A build prints the SHA-256 of each program last.
        output = self._followed(request, run, progress)
        found = re.findall(r"^([0-9a-f]{64})  (\S+)$", output, re.MULTILINE)
        sums = {name: sha256 for sha256, name in found}
        return {name: self._fetched(request, name, sums, progress) for name in request.programs}

    def _prune(self, progress: Progress) -> None:
        """Delete what old builds left there; what cannot be deleted is only mentioned."""
        script = render("build/prune.sh.j2", {"folder": self._folder})
        try:
            with progress.step(f"Deleting old builds on {self.name}"):
                done = self._host.run(script, timeout_s=LONGEST_REMOVAL_S)
        except ArmloadError as error:
            progress.say(error.message)
            return
        if done.status != 0:
            reason = done.stderr.decode("utf-8", "replace").strip()
            progress.say(f"{self.name}: some old builds could not be deleted: {reason}.")

    def _tree(self, request: BuildRequest) -> PurePosixPath:
        return self._folder / "trees" / request.work_id

    def _unpacked(self, request: BuildRequest, progress: Progress) -> PurePosixPath:
        archive = request.folder / "source.tar.gz"
        pack(request.source, archive, progress, request.engine)
        sha256 = sha256_of(archive)
        parts = self._folder / "sources" / sha256[:_DIGITS]
        packed = parts.with_name(f"{parts.name}.tar.gz")
        if not self._has(parts):
            try:
                push(
                    self._host,
                    Layout(workdir=self._folder),
                    archive,
                    packed,
                    sha256=sha256,
                    executable=False,
                    progress=progress,
                )
            except BoardError as error:
                raise BoardError(error.message, self._make_room()) from error
            with progress.step(f"Unpacking on {self.name}"):
                script = render("build/unpack.sh.j2", {"folder": parts, "archive": packed})
                done = self._host.run(script, timeout_s=UNPACKING_LIMIT_S)
            if done.status != 0:
                reason = done.stderr.decode("utf-8", "replace").strip()
                raise self._full_disk(reason) or BoardError(
                    f"{self.name}: {packed} cannot be unpacked: {reason}.", self._make_room()
                )
        archive.unlink()
        return parts

    def _runs(self, work_id: str) -> list[StoredRun]:
        return [
            run for run in list_runs(self._host, self._folder) if run.id.startswith(f"{work_id}-")
        ]

    def _under_way(self, request: BuildRequest) -> PurePosixPath | None:
        """Return the run for a request if it still runs there or has left its programs."""
        for run in reversed(self._runs(request.work_id)):
            if run.state == "running":
                return run.folder
            if run.state == "ended" and run.status == 0 and self._has(self._tree(request)):
                return run.folder
        return None

    def _has(self, folder: PurePosixPath) -> bool:
        return self._host.run(f"[ -d {quote(folder)} ]").status == 0

    def _started(
        self, request: BuildRequest, compiler: Compiler, parts: PurePosixPath
    ) -> PurePosixPath:
        tree, ccache = self._tree(request), self._machine.ccache
        programs = self._machine.programs
        variables = {
            "CMAKE_MAKE_PROGRAM": programs["CMAKE_MAKE_PROGRAM"],
            **definitions(
                request, compiler, source=parts / "engine", native=parts / "native", ccache=ccache
            ),
        }
        script = render(
            "build/compile.sh.j2",
            {
                "nice": ["nice", "-n", self._nice] if self._nice and self._machine.has_nice else [],
                "jobs": self._jobs or 0,
                "cmake": programs["CMAKE_COMMAND"],
                "generator": self._machine.generator,
                "overlay": parts / "overlay",
                "tree": tree,
                "definitions": [f"-D{name}={value}" for name, value in variables.items()],
                "programs": request.programs,
            },
        )
        own = environment(compiler, tree, ccache=ccache, ccache_folder=self._folder / "ccache")
        variables_there = [f"{name}={value}" for name, value in own.items()]
        former = self._runs(request.work_id)
        number = int(former[-1].id.rpartition("-")[2]) + 1 if former else 1
        run = self._folder / "runs" / f"{request.work_id}-{number:04}"
        try:
            launch(
                self._host,
                run_folder=run,
                argv=["env", "-i", *variables_there, "sh", "-c", script],
                trace=False,
                time_limit_s=TIME_LIMIT_S,
                job=b"{}",
            )
        except BoardError as error:
            other = self._under_way(request)  # another workstation started the same build
            if other is None:
                raise self._full_disk(error.message) or error from error
            return other
        return run

    def _followed(self, request: BuildRequest, run: PurePosixPath, progress: Progress) -> str:
        """Wait for the end of a build there and return its output, which is also its log."""
        output = ""
        with progress.step(f"{request.label} on {self.name}", unit="steps") as step:

            def grown(now: ProgressUpdate) -> None:
                nonlocal output
                output = now.text
                status = next(filter(None, map(read_status, reversed(output.splitlines()))), None)
                if status is not None:
                    step.update(status.done, total=status.total, note=status.what)

            try:
                exit_status = follow(self._host, run, grown)
            except KeyboardInterrupt:
                stop(self._host, run)
                raise
            except ConnectError as error:
                raise ConnectError(error.message, _CONTINUES) from error
            except RunError as error:
                again = "Repeat the command to resume it."
                raise BuildError(
                    f"{error.message} The build there was interrupted.", again
                ) from error
            finally:
                request.log.write_text(output, encoding="utf-8")
        # While it grows, only the end of the text is kept.
        whole = b"".join(self._host.read(run / STDOUT_FILE))
        request.log.write_bytes(whole)
        output = whole.decode("utf-8", "replace")
        if exit_status != 0:
            end = output.splitlines()[-LOG_LINES_SHOWN:]
            raise self._full_disk(output) or failure(
                f"{self.name}: the build", exit_status, end, request.log
            )
        return output

    def _full_disk(self, output: str) -> BoardError | None:
        """Return the error for a full disk, if that is why it failed: few programs say so."""
        layout = Layout(workdir=self._folder)
        free_bytes = ask_space(self._host, layout, [self._folder / "trees"]).free_bytes
        is_full = free_bytes is not None and free_bytes < FULL_DISK_BYTES
        if not is_full and "No space left on device" not in output:
            return None
        return BoardError(f"{self.name}: the disk with {self._folder} is full.", self._make_room())

    def _make_room(self) -> str:
        return (
            "A build takes some 500 MB there. Free disk space (finished builds are in "
            f"{self._folder}/trees), or set 'folder' of 'build_host' in "
            f"boards/{self.name}.yaml to a writable folder. Then repeat the command."
        )

    def _fetched(
        self, request: BuildRequest, name: str, sums: Mapping[str, str], progress: Progress
    ) -> Path:
        remote = self._tree(request) / "bin" / name
        local = request.folder / f"{name}.linked"
        digest = hashlib.sha256()
        with (
            progress.step(f"Fetching {name} from {self.name}", unit="B") as step,
            written_whole(local) as beside,
            beside.open("wb") as file,
        ):
            for chunk in self._host.read(remote):
                digest.update(chunk)
                file.write(chunk)
                step.update(file.tell())
            if digest.hexdigest() != sums.get(name):
                raise TransferError(
                    f"{self.name}: {remote} was damaged in transit.", "Repeat the command."
                )
        return local


@contextmanager
def build_backend(
    *,
    on: str,
    compiler: str,
    progress: Progress,
    jobs: int | None = None,
    nice: int | None = None,
    vulkan: bool = False,
) -> Iterator[BuildBackend]:
    """Yield what compiles.

    Args:
        on: a board; empty for this machine.
        compiler: its kind; empty for that machine's usual one.
        jobs: compilers at a time; none for as many as usual there.
        nice: how much they step back for other programs; none for as much as usual there.
        vulkan: to make programs for GPUs.
    """
    if vulkan and on:
        raise UsageError(
            f"--on {on} cannot build for GPUs: shaders are compiled on this machine.",
            "Remove --on.",
        )
    if vulkan:
        progress.say("Programs for GPUs are untested on hardware so far; a run that works helps.")
    if not on:
        tools = vulkan_tools(progress) if vulkan else None
        yield LocalBackend(compiler or "zig", jobs=jobs, nice=nice or 0, vulkan=tools)
        return
    board = load_board(on)
    kind = kind_there(board, compiler)
    with closing(connect(board, progress)) as host:
        yield RemoteBackend(host, board, compiler=kind, jobs=jobs, nice=nice)
