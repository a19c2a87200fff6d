"""Builds the engine's programs for a target, once: the result is addressed by all that went in."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from armload.build.binary import Binary
from armload.build.compiler import Compiler
from armload.build.inspection import check, inspect
from armload.build.order import Order, Workshop, native_folder, overlay_folder, own_files
from armload.build.programs import programs_chosen, renamed
from armload.build.record import BuildRecord, Inputs, Program, reported_version
from armload.build.source import Source, engine_commit, pinned_source
from armload.build.strip import strip
from armload.build.target import Target
from armload.build.workshop import LocalWorkshop
from armload.core.disk import written_in
from armload.core.errors import BuildError, DataError
from armload.core.files import sha256_of, write_whole
from armload.core.locks import locked
from armload.core.progress import Progress, Silent
from armload.core.workspace import cache_folder


def build(
    target: Target,
    *,
    programs: Sequence[str] = (),
    source: Source | None = None,
    workshop: Workshop | None = None,
    progress: Progress | None = None,
) -> tuple[Binary, ...]:
    """Return inspected static programs for ``target``; compile them when they are not there.

    A build that is interrupted goes on where it was when it is asked for again.

    Args:
        target: the CPU to build for.
        programs: names such as ``llama-completion``; empty for the one that measuring needs.
        source: the engine; none for the pinned one.
        workshop: where the compiler runs; none for zig on this machine.
        progress: where the steps are shown.

    Raises:
        BuildError: the source cannot be fetched, does not compile, or the program does not
            fit the target.
        UsageError: the source has no such program, or the workshop makes no such code.
        MissingToolError: a compiler, or one of armload's own packages, is not there.
        DiskError: this machine's disk is full.
        ArmloadError: the workshop is another machine, and something is wrong there.
    """
    progress = progress or Silent()
    source = source or pinned_source()
    workshop = workshop or LocalWorkshop()
    compiler = workshop.compiler(target)
    inputs = Inputs(
        source=source.identity,
        source_label=source.label,
        target=target,
        compiler=compiler.identity,
        compiler_label=compiler.label,
        compiler_flags=tuple(compiler.cpu_flags(target)),
        files=_own_files(),
        programs=tuple(sorted(set(programs))),
    )
    place = cache_folder() / "builds" / inputs.build_id
    finished = _finished(place)
    if finished is None:
        waiting = "Another armload is building the same; waiting for it."
        with (
            written_in(place.parent),
            locked(Path(f"{place}.lock"), progress, waiting=waiting) as lock,
        ):
            finished = (
                _finished(place)
                or _Build(place, inputs, source, workshop, compiler, progress, lock).run()
            )
    for sentence in renamed(programs, [program.name for program in finished.programs]):
        progress.say(sentence)
    return finished.binaries(place)


def _own_files() -> Mapping[str, str]:
    """Return the SHA-256 of each of our files that take part in a build, by its path."""
    files = {}
    for part, folder in (("overlay", overlay_folder()), ("native", native_folder())):
        for path in own_files(folder):
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


class _Build:
    """One build under way in ``<build id>.partial``, renamed when it is complete."""

    def __init__(
        self,
        place: Path,
        inputs: Inputs,
        source: Source,
        workshop: Workshop,
        compiler: Compiler,
        progress: Progress,
        lock: int,
    ) -> None:
        self._place = place
        self._partial = place.with_name(f"{place.name}.partial")
        self._inputs = inputs
        self._source = source
        self._workshop = workshop
        self._compiler = compiler
        self._progress = progress
        self._lock = lock

    def run(self) -> BuildRecord:
        started = time.monotonic()
        folder = self._source.provide(self._progress)
        order = Order(
            build_id=self._inputs.build_id,
            target=self._inputs.target,
            cpu_flags=self._inputs.compiler_flags,
            source=folder,
            engine_commit=engine_commit(self._source, folder),
            programs=tuple(programs_chosen(folder, self._inputs.programs)),
            folder=self._partial,
            lock=self._lock,
        )
        self._partial.mkdir(parents=True, exist_ok=True)
        linked = self._compiled(order)
        record = BuildRecord(
            build_id=order.build_id,
            inputs=self._inputs,
            engine_commit=order.engine_commit,
            tools={**self._workshop.tools, **self._compiler.tools},
            built_utc=datetime.now(UTC).isoformat(timespec="seconds"),
            built_on=self._workshop.name,
            seconds=round(time.monotonic() - started, 1),
            programs=tuple(self._finished(name, path) for name, path in linked.items()),
        )
        self._keep(record)
        return record

    def _compiled(self, order: Order) -> Mapping[str, Path]:
        try:
            return self._workshop.compile(order, self._compiler, self._progress)
        except BuildError as error:
            if re.search(
                r"unknown CPU|unknown value .*-m(?:cpu|arch)|unknown target CPU", str(error)
            ):
                name, cpu = order.target.name, order.target.cpu
                raise DataError(
                    f"toolchains/{name}.yaml: cpu: {self._compiler.label} knows no CPU {cpu!r}.",
                    f"Which it knows is at the end of {order.log}.",
                ) from error
            raise

    def _finished(self, name: str, linked: Path) -> Program:
        """Strip a program, which lies in the build's folder then, and make sure that it fits."""
        path = self._partial / name
        with self._progress.step(f"Inspecting {name}"):
            strip(linked, path)
            # The symbols, which tell more of the code, go with the stripping.
            features = inspect(linked).features
            inspection = inspect(path).model_copy(update={"features": features})
            check(inspection, self._inputs.target)
            return Program(
                name=name,
                sha256=inspection.sha256,
                size_bytes=inspection.size_bytes,
                version=reported_version(path, self._inputs.target.architecture),
                features=features,
            )

    def _keep(self, record: BuildRecord) -> None:
        kept = {program.name for program in record.programs} | {"build.log"}
        for path in self._partial.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name not in kept:
                path.unlink()
        write_whole(self._partial / "build.json", record.model_dump_json(indent=2).encode() + b"\n")
        if self._place.exists():
            shutil.rmtree(self._place)
        self._partial.rename(self._place)
