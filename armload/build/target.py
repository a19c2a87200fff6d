"""A CPU to build for: one YAML file in ``toolchains/``."""

from __future__ import annotations

import platform
import re
import sys
from pathlib import Path
from typing import Literal

from armload.core.errors import UsageError
from armload.core.values import Value
from armload.core.yamlfile import load_named

_CPUINFO = Path("/proc/cpuinfo")
_ARCHITECTURES = {"aarch64": "aarch64", "arm64": "aarch64", "x86_64": "x86_64", "amd64": "x86_64"}


class Target(Value):
    """What ``toolchains/<name>.yaml`` says.

    Attributes:
        name: the file's name.
        description: one line for people.
        architecture: of the code; ``host`` is this machine's own.
        cpu: the CPU in LLVM's words, such as ``cortex-a55``; ``native`` is this machine's own.
        features: CPU features beyond Armv8.0-A that code for this target may use, in the
            words of ``/proc/cpuinfo`` on Linux, such as ``asimddp``.
        must_use: features that the engine's code must hold, or the build counts as slow.
        cflags, cxxflags: further flags for all of the engine's C and C++ code.
        ldflags: further flags for linking.
    """

    name: str
    description: str = ""
    architecture: Literal["aarch64", "x86_64", "host"] = "aarch64"
    cpu: str
    features: tuple[str, ...] = ()
    must_use: tuple[str, ...] = ()
    cflags: tuple[str, ...] = ()
    cxxflags: tuple[str, ...] = ()
    ldflags: tuple[str, ...] = ()


def load_target(name: str) -> Target:
    """Read the target called ``name``; what it leaves to this machine is filled in.

    Raises:
        UsageError: there is none, or this machine is none to build for.
        DataError: its file is malformed.
    """
    target = load_named("toolchains", name, Target)
    return _of_this_machine(target) if target.architecture == "host" else target


def machine_architecture() -> str:
    """Return this machine's architecture in the kernel's words, such as ``aarch64``."""
    machine = platform.machine().lower()
    return _ARCHITECTURES.get(machine, machine)


def _of_this_machine(target: Target) -> Target:
    architecture = machine_architecture()
    if not sys.platform.startswith("linux") or architecture not in _ARCHITECTURES.values():
        raise UsageError(
            f"The target {target.name!r} is this machine, and armload builds for Linux on "
            f"aarch64 and x86_64; this is {platform.system()} on {platform.machine()}.",
            "Name the target of a board, such as armv8-generic.",
        )
    features = _cpu_features(_CPUINFO.read_text(encoding="utf-8", errors="replace"))
    return target.model_copy(update={"architecture": architecture, "features": features})


def _cpu_features(cpuinfo: str) -> tuple[str, ...]:
    """Return the features that every core has, in the order of the first core's list."""
    lists = [
        found.split()
        for found in re.findall(r"^(?:Features|flags)\s*:(.*)$", cpuinfo, re.MULTILINE)
    ]
    common = set.intersection(*(set(each) for each in lists)) if lists else set()
    return tuple(name for name in lists[0] if name in common) if lists else ()
