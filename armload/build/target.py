"""A CPU to build for: one YAML file in ``toolchains/``."""

from __future__ import annotations

from armload.core.values import Value
from armload.core.yamlfile import load_named


class Target(Value):
    """What ``toolchains/<name>.yaml`` says.

    Attributes:
        name: the file's name.
        description: one line for people.
        cpu: the CPU in LLVM's words, such as ``cortex-a55``.
        features: CPU features beyond Armv8.0-A that code for this target may use, in the
            words of ``/proc/cpuinfo`` on Linux, such as ``asimddp``.
        must_use: features that the engine's code must hold, or the build counts as slow.
        cflags: further flags for ggml's CPU library.
    """

    name: str
    description: str = ""
    cpu: str
    features: tuple[str, ...] = ()
    must_use: tuple[str, ...] = ()
    cflags: tuple[str, ...] = ()


def load_target(name: str) -> Target:
    """Read the target called ``name``.

    Raises:
        UsageError: there is none.
        DataError: its file is malformed.
    """
    return load_named("toolchains", name, Target)
