"""Builds the engine's programs for a target, once: the result is addressed by all that went in."""

from __future__ import annotations

import errno
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

from pydantic import ValidationError

from armload.build.binary import Binary
from armload.build.compiler import Zig, find_zig, tool
from armload.build.inspection import check, inspect
from armload.build.ninja import read_status, run_logged
from armload.build.record import BuildRecord, Inputs, Program, reported_version
from armload.build.source import Source, engine_commit, pinned_source, programs_chosen
from armload.build.target import Target
from armload.core.errors import BuildError
from armload.core.files import sha256_of, write_whole
from armload.core.locks import locked
from armload.core.progress import Progress, Silent
from armload.core.workspace import cache_folder, data_path


def build(
    target: Target,
    *,
    programs: Sequence[str] = (),
    source: Source | None = None,
    progress: Progress | None = None,
    jobs: int | None = None,
) -> tuple[Binary, ...]:
    """Return inspected static programs for ``target``; compile them when they are not there.

    A build that is interrupted goes on where it was when it is asked for again.

    Args:
        target: the CPU to build for.
        programs: names such as ``llama-completion``; empty for the one that measuring needs.
        source: the engine; none for the pinned one.
        progress: where the steps are shown.
        jobs: compilers at a time; none for one per core.

    Raises:
        BuildError: the source cannot be fetched, does not compile, or the program does not
            fit the target.
        UsageError: the source has no such program.
        MissingToolError: armload's own packages are incomplete.
    """
    progress = progress or Silent()
    source = source or pinned_source()
    compiler = find_zig()
    inputs = Inputs(
        source=source.identity,
        source_label=source.label,
        target=target,
        compiler=compiler.label,
        compiler_flags=tuple(compiler.cpu_flags(target)),
        files=_own_files(),
        programs=tuple(sorted(set(programs))),
    )
    place = cache_folder() / "builds" / inputs.build_id
    finished = _finished(place)
    if finished is None:
        waiting = "Another armload is building the same; waiting for it."
        with (
            _disk_errors(place),
            locked(Path(f"{place}.lock"), progress, waiting=waiting) as lock,
        ):
            finished = (
                _finished(place)
                or _Build(place, inputs, source, compiler, progress, jobs, lock).run()
            )
    return finished.binaries(place)


def _own_files() -> Mapping[str, str]:
    """Return the SHA-256 of each of our files that take part in a build, by its path."""
    files = {}
    for part in ("overlay", "native"):
        folder = data_path("toolchains", part)
        for path in sorted(folder.iterdir()):
            if path.is_file() and not path.name.startswith("."):
                files[f"{part}/{path.name}"] = sha256_of(path)
    return files


def _finished(place: Path) -> BuildRecord | None:
    """Return the record of a finished build whose programs are still as they were."""
    try:
        record = BuildRecord.model_validate_json((place / "build.json").read_bytes())
    except (FileNotFoundError, ValidationError):
        return None
    for program in record.programs:
        path = place / program.name
        if not path.is_file() or sha256_of(path) != program.sha256:
            return None
    return record


@contextmanager
def _disk_errors(place: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS}:
            raise
        raise BuildError(
            f"{place.parent}: cannot be written: {error.strerror}.",
            "Make room or set ARMLOAD_CACHE to another folder, then run the same command again.",
        ) from error


class _Build:
    """One build under way in ``<build id>.partial``, renamed when it is complete."""

    def __init__(
        self,
        place: Path,
        inputs: Inputs,
        source: Source,
        compiler: Zig,
        progress: Progress,
        jobs: int | None,
        lock: int,
    ) -> None:
        self._place = place
        self._partial = place.with_name(f"{place.name}.partial")
        self._tree = self._partial / "tree"
        self._inputs = inputs
        self._source = source
        self._compiler = compiler
        self._progress = progress
        self._jobs = jobs
        self._lock = lock

    def run(self) -> BuildRecord:
        started = time.monotonic()
        folder = self._source.provide(self._progress)
        programs = programs_chosen(folder, self._inputs.programs)
        commit = engine_commit(self._source, folder)
        self._partial.mkdir(parents=True, exist_ok=True)
        self._configure(folder, commit)
        self._compile(programs)
        inspected = self._inspect(programs)
        record = BuildRecord(
            build_id=self._inputs.build_id,
            inputs=self._inputs,
            engine_commit=commit,
            tools={name: metadata.version(name) for name in ("cmake", "ninja", "ziglang")},
            seconds=round(time.monotonic() - started, 1),
            programs=inspected,
        )
        self._finish(record)
        return record

    def _configure(self, folder: Path, commit: str) -> None:
        definitions = {
            **self._compiler.install(self._partial / "compiler"),
            "CMAKE_MAKE_PROGRAM": str(tool("ninja", "BIN_DIR", "ninja")),
            "ARMLOAD_SOURCE": str(folder),
            "ARMLOAD_NATIVE": str(data_path("toolchains", "native")),
            "ARMLOAD_CPU_FLAGS": ";".join(self._inputs.compiler_flags),
            "ARMLOAD_ENGINE_COMMIT": commit,
        }
        with self._progress.step(f"Configuring for {self._inputs.target.name}") as step:
            lines = 0
            step.update(lines, note="the first time, zig also compiles the C and C++ libraries")

            def watch(line: str) -> None:
                nonlocal lines
                lines += 1
                step.update(lines, note=line.strip().removeprefix("-- ")[:60])

            self._run(
                [
                    str(tool("cmake", "CMAKE_BIN_DIR", "cmake")),
                    *("-G", "Ninja"),
                    *("-S", str(data_path("toolchains", "overlay"))),
                    *("-B", str(self._tree)),
                    *(f"-D{name}={value}" for name, value in definitions.items()),
                ],
                watch,
            )

    def _compile(self, programs: Sequence[str]) -> None:
        jobs = [f"-j{self._jobs}"] if self._jobs else []
        ninja = str(tool("ninja", "BIN_DIR", "ninja"))
        with self._progress.step(
            f"Compiling {', '.join(programs)} for {self._inputs.target.name}", unit="steps"
        ) as step:

            def watch(line: str) -> None:
                status = read_status(line)
                if status is not None:
                    step.update(status.done, total=status.total, note=status.what)

            self._run([ninja, "-C", str(self._tree), *jobs, *programs], watch)

    def _inspect(self, programs: Sequence[str]) -> tuple[Program, ...]:
        found = []
        for program in programs:
            inspection = inspect(self._tree / "bin" / program)
            check(inspection, self._inputs.target)
            found.append(
                Program(
                    name=program,
                    sha256=inspection.sha256,
                    size_bytes=inspection.size_bytes,
                    version=reported_version(inspection.path),
                    features=inspection.features,
                )
            )
        return tuple(found)

    def _run(self, command: Sequence[str], watch: Callable[[str], None]) -> None:
        run_logged(
            command,
            log=self._partial / "build.log",
            environment={
                **self._compiler.environment(),
                "NINJA_STATUS": "[%f/%t] ",
                # Any repository further up would answer a question about the engine's commit.
                "GIT_DIR": str(self._partial / "no-repository"),
            },
            watch=watch,
            keep_open=self._lock,
        )

    def _finish(self, record: BuildRecord) -> None:
        for program in record.programs:
            (self._tree / "bin" / program.name).replace(self._partial / program.name)
        write_whole(self._partial / "build.json", record.model_dump_json(indent=2).encode() + b"\n")
        shutil.rmtree(self._tree)
        shutil.rmtree(self._partial / "compiler")
        if self._place.exists():
            shutil.rmtree(self._place)
        self._partial.rename(self._place)
