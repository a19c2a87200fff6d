"""A program that passed inspection."""

from __future__ import annotations

from pathlib import Path

from armload.core.values import Value


class FeatureUse(Value):
    """How often code uses a CPU feature, and where for instance.

    Attributes:
        feature: in the words of ``/proc/cpuinfo``, such as ``asimddp``.
        count: number of instructions.
        address: of the first one.
        mnemonic: of the first one, such as ``sdot``.
        guarded: all uses lie behind the C library's run-time check (outline atomics).
    """

    feature: str
    count: int
    address: int
    mnemonic: str
    guarded: bool = False


class Binary(Value):
    """A static program, inspected and addressed by what went into it.

    Attributes:
        program: such as ``llama-completion``.
        path: the file on the laptop.
        sha256: of the file, 64 hexadecimal digits.
        size_bytes: of the file.
        target: name of the target it was built for.
        compiler: name and version, such as ``zig 0.15.2``.
        source: name and version of the engine's source, such as ``llama-cpp-python 0.3.36``.
        engine_commit: upstream's commit or version, as the source says it.
        build_id: the first twelve digits of the hash of all inputs.
        features: CPU features found in its code.
    """

    program: str
    path: Path
    sha256: str
    size_bytes: int
    target: str
    compiler: str
    source: str
    engine_commit: str
    build_id: str
    features: tuple[FeatureUse, ...]
