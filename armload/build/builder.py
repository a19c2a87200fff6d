"""Builds the engine's programs for a target, each once: addressed by all that decides its bytes."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from armload.build.archive import Archive
from armload.build.backend import (
    BuildBackend,
    BuildRequest,
    native_folder,
    overlay_folder,
    own_files,
)
from armload.build.binary import Binary
from armload.build.commit import Commit
from armload.build.compiler import Compiler
from armload.build.inspection import check, inspect
from armload.build.local_backend import LocalBackend
from armload.build.prebuilt import copy_prebuilt_programs
from armload.build.programs import programs_chosen, programs_offered, renamed
from armload.build.record import (
    BuildRecord,
    Inputs,
    Program,
    read_record,
    reported_version,
    write_record,
)
from armload.build.source import (
    Source,
    engine_commit,
    known_architectures,
    pinned_source,
    project_of,
)
from armload.build.stripping import strip
from armload.build.target import Target
from armload.core.errors import BuildError, DataError
from armload.core.files import sha256_of, written_in
from armload.core.locks import locked, locked_now
from armload.core.progress import Progress, Silent
from armload.core.workspace import compiling_folder

_DISTRIBUTED_KERNELS = ("asimddp",)
"""CPU features that distributed-llama's kernels use where the compiler may
(``src/nn/nn-cpu-ops.cpp``)."""


def build(
    target: Target,
    *,
    programs: Sequence[str] = (),
    source: Source | None = None,
    backend: BuildBackend | None = None,
    progress: Progress | None = None,
    rebuild: bool = False,
) -> tuple[Binary, ...]:
    """Return inspected programs for ``target``; compile them when they are not there.

    They are there when they lie in the cache, or came with the release. An interrupted build
    resumes when it is requested again. Missing programs are added to an existing build, from what
    was compiled for the others.

    Args:
        programs: names such as ``llama-completion``; empty for the one that measuring needs.
        source: the engine; none for the pinned one.
        backend: where the compiler runs; none for zig on this machine.
        rebuild: compile them all from the source, and say whether the bytes are the same as before.

    Raises:
        BuildError: the source cannot be fetched, does not compile, or the program does not
            fit the target.
        UsageError: the source has no such program, or the backend makes no such code.
        MissingToolError: a compiler, or one of armload's own packages, is not there.
    """
    progress = progress or Silent()
    source = source or pinned_source()
    backend = backend or LocalBackend()
    compiler = backend.compiler(target)
    inputs = _inputs(source, target, compiler)
    place = _place(inputs)
    lock = place.with_name(f"{place.name}.lock")
    record = _record(place)
    binaries = None if rebuild else _finished(record, place, programs)
    if record is not None and binaries is not None:
        # Some could not be run when they were built, and may say their version now.
        if record.with_versions(place) != record:
            with suppress(OSError), locked_now(lock) as ours:
                if ours:
                    write_record(place, read_record(place).with_versions(place))
    else:
        waiting = (
            "Another armload process is building from the same source for the same CPU. Waiting "
            "for it."
        )
        with written_in(place.parent), locked(lock, progress, waiting=waiting) as held:
            record = copy_prebuilt_programs(place, _record(place), inputs, programs, progress)
            binaries = None if rebuild else _finished(record, place, programs)
            if binaries is None:
                make = _Build(place, inputs, source, backend, compiler, progress, held)
                binaries = make.run(programs, record, rebuild=rebuild)
    for sentence in renamed(programs, [binary.program for binary in binaries]):
        progress.say(sentence)
    return binaries


def is_compiled(target: Target, programs: Sequence[str] = ()) -> bool:
    """Return whether programs lie in the cache, built by default; empty: the one that measures."""
    inputs = _inputs(pinned_source(), target, LocalBackend().compiler(target))
    place = _place(inputs)
    return _finished(_record(place), place, programs) is not None


def _inputs(source: Source, target: Target, compiler: Compiler) -> Inputs:
    # Our own files take part in a build, too.
    files = {}
    overlay = overlay_folder(project_of(source))
    for part, folder in (("overlay", overlay), ("native", native_folder())):
        for path in own_files(folder):
            files[f"{part}/{path.relative_to(folder).as_posix()}"] = sha256_of(path)
    return Inputs(
        source=source.identity,
        source_label=source.label,
        target=target,
        compiler=compiler.identity,
        compiler_label=compiler.label,
        compiler_flags=tuple(compiler.cpu_flags(target)),
        files=files,
    )


def _place(inputs: Inputs) -> Path:
    return compiling_folder("builds") / inputs.build_id


def _finished(
    record: BuildRecord | None, place: Path, wanted: Sequence[str]
) -> tuple[Binary, ...] | None:
    """Return the wanted programs of a build, if all are there and as they were built."""
    if record is None:
        return None
    names = programs_chosen(record.inputs.source_label, record.offered, wanted)
    chosen = [each for each in record.programs if each.name in names]
    if len(chosen) < len(names) or not all(each.is_whole(place) for each in chosen):
        return None
    return tuple(record.binary(each, place) for each in chosen)


def _record(place: Path) -> BuildRecord | None:
    try:
        return read_record(place)
    except (FileNotFoundError, ValidationError):
        return None


class _Build:
    """A build to which programs are added; its record says which are complete."""

    def __init__(
        self,
        place: Path,
        inputs: Inputs,
        source: Source,
        backend: BuildBackend,
        compiler: Compiler,
        progress: Progress,
        lock: int,
    ) -> None:
        self._place = place
        self._inputs = inputs
        self._source = source
        self._backend = backend
        self._compiler = compiler
        self._progress = progress
        self._lock = lock

    def run(
        self, wanted: Sequence[str], former: BuildRecord | None, *, rebuild: bool
    ) -> tuple[Binary, ...]:
        started = time.monotonic()
        folder = self._source.provide(self._progress)
        offered = programs_offered(folder, project_of(self._source))
        names = programs_chosen(self._inputs.source_label, offered, wanted)
        there = [each for each in former.programs if each.is_whole(self._place)] if former else []
        kept = [each for each in there if not (rebuild and each.name in names)]
        request = BuildRequest(
            build_id=self._inputs.build_id,
            target=self._inputs.target,
            cpu_flags=self._inputs.compiler_flags,
            engine=project_of(self._source),
            source=folder,
            is_commit=isinstance(self._source, Commit),
            engine_commit=engine_commit(self._source, folder),
            groups=self._source.groups if isinstance(self._source, Archive) else (),
            programs=tuple(sorted(set(names) - {program.name for program in kept})),
            folder=self._place,
            lock=self._lock,
        )
        self._place.mkdir(parents=True, exist_ok=True)
        if rebuild:
            shutil.rmtree(self._place / "tree", ignore_errors=True)
        linked = self._compiled(request)
        made = [self._made(name, path, started) for name, path in linked.items()]
        if rebuild:
            self._compare(made, there)
        record = BuildRecord(
            build_id=request.build_id,
            inputs=self._inputs,
            engine_commit=request.engine_commit,
            offered=tuple(offered),
            architectures=known_architectures(folder),
            programs=tuple(sorted([*kept, *made], key=lambda program: program.name)),
        )
        write_record(self._place, record)
        return tuple(
            record.binary(each, self._place) for each in record.programs if each.name in names
        )

    def _compiled(self, request: BuildRequest) -> Mapping[str, Path]:
        try:
            return self._backend.compile(request, self._compiler, self._progress)
        except BuildError as error:
            if re.search(
                r"unknown CPU|unknown value .*-m(?:cpu|arch)|unknown target CPU", str(error)
            ):
                name, cpu = request.target.name, request.target.cpu
                raise DataError(
                    f"toolchains/{name}.yaml: cpu: {self._compiler.label} does not support the "
                    f"CPU {cpu!r}.",
                    f"The end of {request.log} lists those that it supports. zig supports the CPUs "
                    "of all targets that armload brings.",
                ) from error
            raise

    def _compare(self, made: Sequence[Program], before: Sequence[Program]) -> None:
        """Say of each program that was there before whether it has the same bytes again."""
        by_name = {program.name: program for program in before}
        for program in made:
            former = by_name.get(program.name)
            if former is None:
                continue
            prebuilt = f"prebuilt in {former.prebuilt_in}" if former.prebuilt_in else "before"
            if former.sha256 == program.sha256:
                said = f"identical to the one {prebuilt}"
            else:
                said = f"not identical to the one {prebuilt}, which had {former.sha256}"
            self._progress.say(f"{program.name} was compiled: SHA-256 {program.sha256}, {said}.")

    @property
    def _with_kernels(self) -> Target:
        """The target, of whose features the program must use those that its engine has code for."""
        target = self._inputs.target
        if project_of(self._source) == "llama.cpp":
            return target
        used = tuple(each for each in target.must_use if each in _DISTRIBUTED_KERNELS)
        return target.model_copy(update={"must_use": used})

    def _made(self, name: str, linked: Path, started: float) -> Program:
        """Strip a program, which lies in the build's folder then, and make sure that it fits."""
        path = self._place / name
        with self._progress.step(f"Inspecting {name}"):
            strip(linked, path)
            # The symbols, which tell more of the code, go with the stripping.
            features = inspect(linked).features
            inspection = inspect(path).model_copy(update={"features": features})
            check(inspection, self._with_kernels)
            linked.unlink()
            return Program(
                name=name,
                sha256=inspection.sha256,
                size_bytes=inspection.size_bytes,
                version=reported_version(
                    path, self._inputs.target.architecture, is_static=inspection.is_static
                ),
                features=features,
                needed=inspection.needed,
                glibc=inspection.glibc,
                tools={**self._backend.tools, **self._compiler.tools},
                built_utc=datetime.now(UTC).isoformat(timespec="seconds"),
                built_on=self._backend.name,
                seconds=round(time.monotonic() - started, 1),
            )
