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
from armload.build.inspection import Inspection
from armload.build.target import Target, machine_architecture
from armload.core.values import Value

VERSION_PATIENCE_S = 20.0


class Inputs(Value):
    """All that decides what a build gives.

    Attributes:
        source: says which content the engine's source has.
        source_label: the source for people.
        target: the CPU.
        compiler: says all that decides which code the compiler makes.
        compiler_label: the compiler for people.
        compiler_flags: for the engine's CPU library.
        files: SHA-256 of each of our own files that take part.
        programs: as asked for; empty for the one that measuring needs.
    """

    source: str
    source_label: str
    target: Target
    compiler: str
    compiler_label: str
    compiler_flags: tuple[str, ...]
    files: Mapping[str, str]
    programs: tuple[str, ...]

    @property
    def build_id(self) -> str:
        """The first twelve digits of the hash of it all."""
        told = self.model_dump_json(exclude={"source_label": True, "target": {"description"}})
        return hashlib.sha256(told.encode()).hexdigest()[:12]


class Program(Value):
    """One program that was built.

    Attributes:
        name: of the program and its file.
        sha256, size_bytes: of the file.
        version: first line of what it says to ``--version``; none where it cannot be run here.
        features: CPU features that its code uses.
    """

    name: str
    sha256: str
    size_bytes: int
    version: str | None
    features: tuple[FeatureUse, ...]


class BuildRecord(Value):
    """A finished build.

    Attributes:
        build_id: of the inputs.
        inputs: what went in.
        engine_commit: upstream's commit or version, as the source says it.
        tools: versions of what took part without changing the result.
        built_utc: when it was finished, in ISO 8601.
        built_on: the machine that compiled it.
        seconds: that it took, the last time it was started.
        programs: what came out.
    """

    format: Literal[1] = 1
    build_id: str
    inputs: Inputs
    engine_commit: str
    tools: Mapping[str, str]
    built_utc: str
    built_on: str
    seconds: float
    programs: tuple[Program, ...]

    def binaries(self, folder: Path) -> tuple[Binary, ...]:
        """Return the programs, which lie in ``folder``."""
        return tuple(
            Binary(
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
                features=program.features,
            )
            for program in self.programs
        )


def with_recorded_features(inspection: Inspection) -> Inspection:
    """Return what is known of a program of ours with what its symbols told when it was built."""
    try:
        content = (inspection.path.parent / "build.json").read_bytes()
        record = BuildRecord.model_validate_json(content)
    except (OSError, ValidationError):
        return inspection
    for program in record.programs:
        if program.sha256 == inspection.sha256:
            return inspection.model_copy(update={"features": program.features})
    return inspection


def reported_version(program: Path, architecture: str) -> str | None:
    """Return what a program says to ``--version``, where this machine can run it."""
    command = _runner(architecture)
    if command is None:
        return None
    try:
        answer = subprocess.run(
            [*command, str(program), "--version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=VERSION_PATIENCE_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    lines = [line for line in answer.stdout.splitlines() if line.startswith("version")]
    return lines[0] if lines else None


def _runner(architecture: str) -> list[str] | None:
    """Return the words before a program that make this machine run it; none where it cannot."""
    if sys.platform.startswith("linux") and machine_architecture() == architecture:
        return []
    emulator = shutil.which(f"qemu-{architecture}") or shutil.which(f"qemu-{architecture}-static")
    return [emulator, "-cpu", "max"] if emulator else None
