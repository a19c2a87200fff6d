"""Builds the engine's programs for a target, each once: addressed by all that decides its bytes."""

from __future__ import annotations

import re
import struct
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from armload.build.binary import Binary
from armload.build.commit import Commit
from armload.build.compiler import Compiler
from armload.build.inspection import check, inspect
from armload.build.order import BuildBackend, BuildRequest, native_folder, overlay_folder, own_files
from armload.build.programs import programs_chosen, programs_offered, renamed
from armload.build.record import (
    BuildRecord,
    Inputs,
    Program,
    read_record,
    reported_version,
    write_record,
)
from armload.build.source import Archive, Source, engine_commit, known_architectures, pinned_source
from armload.build.target import Target
from armload.build.workshop import LocalWorkshop
from armload.core.errors import BuildError, DataError
from armload.core.files import sha256_of, written_in, written_whole
from armload.core.locks import locked, locked_now
from armload.core.progress import Progress, Silent
from armload.core.workspace import compiling_folder

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_ALLOC = 2
_NOBITS = 8
_STRTAB = 3


class _Section(NamedTuple):
    """An entry of ELF's section table, in the order of the format (gABI, chapter 4)."""

    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int


def strip(program: Path, stripped: Path) -> None:
    """Write ``program``, a linked 64-bit little-endian ELF file, to ``stripped`` without symbols.

    What is loaded stays byte for byte where it is; sections that are not loaded go. No
    compiler package brings a tool that does this for every architecture.
    """
    content = program.read_bytes()
    header = list(_HEADER.unpack_from(content))
    segments_at, sections_at = header[5], header[6]
    segment_count, section_count, names_index = header[10], header[12], header[13]
    sections = [
        _Section(*_SECTION.unpack_from(content, sections_at + index * _SECTION.size))
        for index in range(section_count)
    ]
    names = sections[names_index]
    kept = [0, *(index for index, each in enumerate(sections) if each.flags & _ALLOC)]
    ends = [_segment_end(content, segments_at, index) for index in range(segment_count)]
    ends += [each.offset + each.size for each in sections if _is_in_file(each)]
    body = content[: max(ends)]
    table, strings = _tables(content, sections, kept, names, len(body))
    strings_end = len(body) + len(strings)
    padding = -strings_end % 8
    header[6], header[12], header[13] = strings_end + padding, len(kept) + 1, len(kept)
    with written_whole(stripped) as beside:
        beside.write_bytes(
            _HEADER.pack(*header) + body[_HEADER.size :] + strings + bytes(padding) + table
        )
    stripped.chmod(0o755)


def _segment_end(content: bytes, segments_at: int, index: int) -> int:
    _, _, offset, _, _, file_size, _, _ = _SEGMENT.unpack_from(
        content, segments_at + index * _SEGMENT.size
    )
    end: int = offset + file_size
    return max(end, segments_at + (index + 1) * _SEGMENT.size)


def _is_in_file(section: _Section) -> bool:
    return bool(section.flags & _ALLOC) and section.kind != _NOBITS


def _tables(
    content: bytes, sections: Sequence[_Section], kept: list[int], names: _Section, at: int
) -> tuple[bytes, bytes]:
    """Return the new section table, and the names that it refers to, which lie at ``at``."""
    strings = bytearray(b"\0")
    table = bytearray()
    for index in kept:
        section = sections[index]
        start = names.offset + section.name
        name = content[start : content.index(b"\0", start)]
        table += _SECTION.pack(
            *section._replace(
                name=len(strings) if name else 0,
                link=kept.index(section.link) if section.link in kept else 0,
                info=kept.index(section.info) if section.info in kept else 0,
            )
        )
        strings += name + b"\0" if name else b""
    own_name = len(strings)
    strings += b".shstrtab\0"
    table += _SECTION.pack(own_name, _STRTAB, 0, 0, at, len(strings), 0, 0, 1, 0)
    return bytes(table), bytes(strings)


def build(
    target: Target,
    *,
    programs: Sequence[str] = (),
    source: Source | None = None,
    workshop: BuildBackend | None = None,
    progress: Progress | None = None,
) -> tuple[Binary, ...]:
    """Return inspected static programs for ``target``; compile them when they are not there.

    An interrupted build resumes when it is requested again. Missing programs are added to an
    existing build, from what was compiled for the others.

    Args:
        programs: names such as ``llama-completion``; empty for the one that measuring needs.
        source: the engine; none for the pinned one.
        workshop: where the compiler runs; none for zig on this machine.

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
    )
    place = compiling_folder("builds") / inputs.build_id
    lock = place.with_name(f"{place.name}.lock")
    binaries = _finished(place, programs)
    if binaries is not None:
        _ask_versions_again(place, lock)
    else:
        waiting = (
            "Another armload process is building from the same source for the same CPU. Waiting "
            "for it."
        )
        with written_in(place.parent), locked(lock, progress, waiting=waiting) as held:
            binaries = _finished(place, programs) or _Build(
                place, inputs, source, workshop, compiler, progress, held
            ).run(programs)
    for sentence in renamed(programs, [binary.program for binary in binaries]):
        progress.say(sentence)
    return binaries


def _own_files() -> Mapping[str, str]:
    """Return the SHA-256 of each of our files that take part in a build, by its path."""
    files = {}
    for part, folder in (("overlay", overlay_folder()), ("native", native_folder())):
        for path in own_files(folder):
            files[f"{part}/{path.relative_to(folder).as_posix()}"] = sha256_of(path)
    return files


def _finished(place: Path, wanted: Sequence[str]) -> tuple[Binary, ...] | None:
    """Return the wanted programs of a build, if all are there and as they were built."""
    record = _record(place)
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


def _ask_versions_again(place: Path, lock: Path) -> None:
    """Record what programs say of themselves that could not be run when they were built.

    Whatever is in the way is so only for now.
    """
    record = _record(place)
    if record is None or record.with_versions(place) == record:
        return
    with suppress(OSError), locked_now(lock) as held:
        if held:
            write_record(place, read_record(place).with_versions(place))


class _Build:
    """A build to which programs are added; its record says which are complete."""

    def __init__(
        self,
        place: Path,
        inputs: Inputs,
        source: Source,
        workshop: BuildBackend,
        compiler: Compiler,
        progress: Progress,
        lock: int,
    ) -> None:
        self._place = place
        self._inputs = inputs
        self._source = source
        self._workshop = workshop
        self._compiler = compiler
        self._progress = progress
        self._lock = lock

    def run(self, wanted: Sequence[str]) -> tuple[Binary, ...]:
        started = time.monotonic()
        folder = self._source.provide(self._progress)
        offered = programs_offered(folder)
        names = programs_chosen(self._inputs.source_label, offered, wanted)
        former = _record(self._place)
        kept = [each for each in former.programs if each.is_whole(self._place)] if former else []
        order = BuildRequest(
            build_id=self._inputs.build_id,
            target=self._inputs.target,
            cpu_flags=self._inputs.compiler_flags,
            source=folder,
            is_commit=isinstance(self._source, Commit),
            engine_commit=engine_commit(self._source, folder),
            together=self._source.together if isinstance(self._source, Archive) else (),
            programs=tuple(sorted(set(names) - {program.name for program in kept})),
            folder=self._place,
            lock=self._lock,
        )
        self._place.mkdir(parents=True, exist_ok=True)
        linked = self._compiled(order)
        made = [self._made(name, path, started) for name, path in linked.items()]
        record = BuildRecord(
            build_id=order.build_id,
            inputs=self._inputs,
            engine_commit=order.engine_commit,
            offered=tuple(offered),
            architectures=known_architectures(folder),
            programs=tuple(sorted([*kept, *made], key=lambda program: program.name)),
        )
        write_record(self._place, record)
        return tuple(
            record.binary(each, self._place) for each in record.programs if each.name in names
        )

    def _compiled(self, order: BuildRequest) -> Mapping[str, Path]:
        try:
            return self._workshop.compile(order, self._compiler, self._progress)
        except BuildError as error:
            if re.search(
                r"unknown CPU|unknown value .*-m(?:cpu|arch)|unknown target CPU", str(error)
            ):
                name, cpu = order.target.name, order.target.cpu
                raise DataError(
                    f"toolchains/{name}.yaml: cpu: {self._compiler.label} does not support the "
                    f"CPU {cpu!r}.",
                    f"The end of {order.log} lists those that it supports. zig supports the CPUs "
                    "of all targets that armload brings.",
                ) from error
            raise

    def _made(self, name: str, linked: Path, started: float) -> Program:
        """Strip a program, which lies in the build's folder then, and make sure that it fits."""
        path = self._place / name
        with self._progress.step(f"Inspecting {name}"):
            strip(linked, path)
            # The symbols, which tell more of the code, go with the stripping.
            features = inspect(linked).features
            inspection = inspect(path).model_copy(update={"features": features})
            check(inspection, self._inputs.target)
            linked.unlink()
            return Program(
                name=name,
                sha256=inspection.sha256,
                size_bytes=inspection.size_bytes,
                version=reported_version(path, self._inputs.target.architecture),
                features=features,
                tools={**self._workshop.tools, **self._compiler.tools},
                built_utc=datetime.now(UTC).isoformat(timespec="seconds"),
                built_on=self._workshop.name,
                seconds=round(time.monotonic() - started, 1),
            )
