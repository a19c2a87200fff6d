"""What ``build.json`` says: all that went into a build, and what came out."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from armload.build.binary import Binary, FeatureUse
from armload.build.environment import bare_environment
from armload.build.inspection import Inspection
from armload.build.target import Target, machine_architecture
from armload.core.files import sha256_of, write_whole
from armload.core.values import Value

VERSION_PATIENCE_S = 20.0
RECORD_NAME = "build.json"


class Inputs(Value):
    """All that decides the bytes of each program of a build.

    Attributes:
        source: says which content the engine's source has.
        source_label: the source for people.
        target: the CPU.
        compiler: says all that decides which code the compiler makes.
        compiler_label: the compiler for people.
        compiler_flags: for the engine's CPU library.
        files: SHA-256 of each of our own files that take part.
    """

    source: str
    source_label: str
    target: Target
    compiler: str
    compiler_label: str
    compiler_flags: tuple[str, ...]
    files: Mapping[str, str]

    @property
    def build_id(self) -> str:
        """The first twelve digits of the hash of it all."""
        content = self.model_dump_json(exclude={"source_label": True, "target": {"description"}})
        return hashlib.sha256(content.encode()).hexdigest()[:12]


class Program(Value):
    """One program that was built.

    Attributes:
        name: of the program and its file.
        sha256, size_bytes: of the file.
        version: first line of what it says to ``--version``, empty if it says nothing; none
            where it could not be run so far.
        features: CPU features that its code uses.
        needed, glibc: as ``Binary`` has them.
        tools: versions of what took part without changing the result.
        built_utc: when it was finished, in ISO 8601; of a prebuilt one, the release's time.
        built_on: the machine that compiled it; empty for a prebuilt one.
        seconds: that compiling took, with the other programs that were missing at the time.
        prebuilt_in: the release that it came with, such as ``armload 0.1.0``; empty where it was
            compiled for this cache.
    """

    name: str
    sha256: str
    size_bytes: int
    version: str | None
    features: tuple[FeatureUse, ...]
    needed: tuple[str, ...] = ()
    glibc: str = ""
    tools: Mapping[str, str]
    built_utc: str
    built_on: str
    seconds: float
    prebuilt_in: str = ""

    def is_whole(self, folder: Path) -> bool:
        """Say whether its file in ``folder`` is as it was built."""
        path = folder / self.name
        return path.is_file() and sha256_of(path) == self.sha256


class BuildRecord(Value):
    """A finished build, to which further programs may be added.

    Attributes:
        build_id: of the inputs.
        inputs: what went in.
        engine_commit: upstream's commit or version, as the source says it.
        offered: the names of all programs that the source can build.
        architectures: of models that the source knows; empty where it does not say.
        programs: those that were built, sorted by name.
    """

    format: Literal[2] = 2
    build_id: str
    inputs: Inputs
    engine_commit: str
    offered: tuple[str, ...]
    architectures: tuple[str, ...] = ()
    programs: tuple[Program, ...]

    def binary(self, program: Program, folder: Path) -> Binary:
        """Return one of the programs, which lies in ``folder``."""
        return Binary(
            program=program.name,
            path=folder / program.name,
            sha256=program.sha256,
            size_bytes=program.size_bytes,
            target=self.inputs.target.name,
            architecture=self.inputs.target.architecture,
            compiler=self.inputs.compiler_label,
            source=self.inputs.source_label,
            engine_commit=self.engine_commit,
            build_id=self.build_id,
            prebuilt_in=program.prebuilt_in,
            features=program.features,
            needed=program.needed,
            glibc=program.glibc,
            architectures=self.architectures,
        )

    def with_versions(self, folder: Path) -> BuildRecord:
        """Return it with what the programs say of their version, where that was not known."""
        architecture = self.inputs.target.architecture
        programs = []
        for program in self.programs:
            version = program.version
            if version is None:
                version = reported_version(
                    folder / program.name, architecture, is_static=not program.needed
                )
            programs.append(program.model_copy(update={"version": version}))
        return self.model_copy(update={"programs": tuple(programs)})


def read_record(folder: Path) -> BuildRecord:
    """Read what is recorded of the build in ``folder``.

    Raises:
        OSError: there is no record, or it cannot be read.
        ValidationError: it is malformed, or of another version of armload.
    """
    return BuildRecord.model_validate_json((folder / RECORD_NAME).read_bytes())


def write_record(folder: Path, record: BuildRecord) -> None:
    """Record the build in ``folder``, in place of what was recorded there."""
    write_whole(folder / RECORD_NAME, record.model_dump_json(indent=2).encode() + b"\n")


def with_build_record(inspection: Inspection) -> Inspection:
    """Return what is known of a program of ours with what was recorded when it was built."""
    try:
        record = read_record(inspection.path.parent)
    except (OSError, ValidationError):
        return inspection
    for program in record.programs:
        if program.sha256 == inspection.sha256:
            recorded = {"features": program.features, "prebuilt_in": program.prebuilt_in}
            return inspection.model_copy(update=recorded)
    return inspection


def reported_version(program: Path, architecture: str, *, is_static: bool) -> str | None:
    """Return a program's line on its version, if it has one; none where it cannot be run here.

    Args:
        is_static: it runs under an emulator, too; else that lacks the libraries.
    """
    command = runner(architecture)
    if command is None or (command and not is_static):
        return None
    try:
        answer = subprocess.run(
            [*command, str(program), "--version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=bare_environment(),
            timeout=VERSION_PATIENCE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if answer.returncode < 0:  # another CPU, or a newer emulator, may run it
        return None
    lines = [line for line in answer.stdout.splitlines() if line.startswith("version")]
    return lines[0] if lines and answer.returncode == 0 else ""


def runner(architecture: str) -> list[str] | None:
    """Return the words before a program that make this machine run it; none where it cannot."""
    if sys.platform.startswith("linux") and machine_architecture() == architecture:
        return []
    emulator = shutil.which(f"qemu-{architecture}") or shutil.which(f"qemu-{architecture}-static")
    return [emulator, "-cpu", "max"] if emulator else None
