"""A program that passed inspection."""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import Field

from armload.core.values import Value

_COMMIT = re.compile(r"(?:(b\d+)-)?([0-9a-f]{7,40})|(b\d+)")
_SHORT_DIGITS = 9
_DISTRIBUTED = "distributed-llama"


class FeatureUse(Value):
    """How often code uses a CPU feature, and where for instance.

    Attributes:
        feature: in the words of ``/proc/cpuinfo``, such as ``asimddp``.
        count: number of instructions.
        guarded_count: of these, how many lie behind a check at run time, as the C library's
            outline atomics do.
        address: of the first one that is not guarded; of the first one where all are.
        mnemonic: of that one, such as ``sdot``.
        symbol: the function that it lies in; none where the file does not say.
    """

    feature: str
    count: int
    guarded_count: int = 0
    address: int
    mnemonic: str
    symbol: str | None = None

    @property
    def guarded(self) -> bool:
        """All uses are reached only where the CPU has the feature."""
        return self.guarded_count == self.count


class Binary(Value):
    """A program, inspected and addressed by what went into it.

    Attributes:
        program: such as ``llama-completion``.
        path: the file on this machine.
        sha256: of the file, 64 hexadecimal digits.
        size_bytes: of the file.
        target: name of the target it was built for.
        architecture: of its code, in the kernel's words, such as ``aarch64``.
        compiler: name and version, such as ``zig 0.15.2``.
        source: name and version of the engine's source, such as ``llama-cpp-python 0.3.36``.
        engine_commit: upstream's build number and commit, such as ``b11312-0c1e57098``, one of
            them, or its version, as the source says it.
        build_id: the first twelve digits of the hash of all inputs.
        prebuilt_in: the release of armload that it came with, such as ``armload 0.1.0``; empty
            where it was compiled for this cache.
        features: CPU features found in its code.
        needed: the shared libraries that it needs; empty for a static program.
        glibc: the oldest version of that C library that it runs with; empty for a static program.
        architectures: of models that the source knows, which JSON leaves out; empty where it does
            not say.
    """

    program: str
    path: Path
    sha256: str
    size_bytes: int
    target: str
    architecture: str
    compiler: str
    source: str
    engine_commit: str
    build_id: str
    prebuilt_in: str = ""
    features: tuple[FeatureUse, ...]
    needed: tuple[str, ...] = ()
    glibc: str = ""
    architectures: tuple[str, ...] = Field(default=(), exclude=True)


def engine_name(source: str, commit: str) -> str:
    """Return what people call an engine: llama.cpp and its release and commit, or the source.

    Args:
        source: as ``Binary`` has it; empty where it is unknown.
        commit: as ``Binary`` has it; empty where it is unknown.
    """
    known = _COMMIT.fullmatch(commit)
    if source.startswith(_DISTRIBUTED):
        return source
    if known is None:
        return f"llama.cpp {commit}" if commit and not source else source
    number, digits = known[1] or known[3], (known[2] or "")[:_SHORT_DIGITS]
    name = f"{number} ({digits})" if number and digits else number or digits
    return f"llama.cpp {name}"


def release_and_commit(commit: str) -> tuple[int, str]:
    """Return upstream's build number, 0 where it is unknown, and its commit or version."""
    known = _COMMIT.fullmatch(commit)
    if known is None:
        return 0, commit
    return int((known[1] or known[3] or "b0")[1:]), known[2] or commit
