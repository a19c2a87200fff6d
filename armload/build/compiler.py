"""What can compile: zig, which needs nothing else, or a compiler that the system has."""

from __future__ import annotations

import importlib.util
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Protocol, get_args

from armload.build.system_compiler import (
    asking_script,
    read_machine,
    read_system_compiler,
    words_for,
)
from armload.build.target import Target
from armload.build.vulkan import VulkanTools
from armload.build.zig import find_zig
from armload.core.errors import MissingToolError, UsageError
from armload.core.shell import pip_install

CompilerName = Literal["zig", "gnu", "native"]
COMPILERS: tuple[CompilerName, ...] = get_args(CompilerName)


class Compiler(Protocol):
    """Makes programs for a target: static ones, or for a board's Vulkan loader and C library."""

    @property
    def label(self) -> str:
        """Name and version for people."""

    @property
    def identity(self) -> str:
        """Says all that decides which code it makes."""

    @property
    def tools(self) -> Mapping[str, str]:
        """Versions, by the tool's name."""

    def cpu_flags(self, target: Target) -> list[str]:
        """Return the flags that make code for the target's CPU."""

    def definitions(self, target: Target) -> Mapping[str, str]:
        """Return CMake's variables for this compiler, which is made ready to be called."""

    def environment(self) -> Mapping[str, str]:
        """Return environment variables that it is called with."""


def find_compiler(name: str, target: Target, vulkan: VulkanTools | None = None) -> Compiler:
    """Return a compiler of this machine that makes code for ``target``.

    Args:
        vulkan: to make programs for GPUs, which zig alone does.
    """
    kind = compiler_name(name)
    if kind == "zig":
        return find_zig(target, vulkan)
    if vulkan is not None:
        raise UsageError(
            f"--backend vulkan cannot be combined with --compiler {kind}: its programs would need "
            "the C library of this machine, which may be newer than the board's.",
            "Remove --compiler.",
        )
    words = words_for(kind, target)
    try:
        machine = read_machine(_run_here(asking_script(words)))
        return read_system_compiler(machine, words, target, where="this machine")
    except MissingToolError as error:
        other = "Or use the compiler that comes with armload: --compiler zig."
        raise MissingToolError(error.message, f"{error.remedy} {other}") from error


def compiler_name(name: str) -> CompilerName:
    for known in COMPILERS:
        if name == known:
            return known
    raise UsageError(
        f"There is no compiler named {name!r}.",
        "Available: zig (comes with armload), gnu (the distribution's cross compiler for the "
        "target), native (the machine's own).",
    )


def tool(package: str, folder_name: str, program: str) -> Path:
    """Return a program that a Python package carries, whatever else this machine has."""
    if importlib.util.find_spec(package) is not None:
        folder = Path(getattr(importlib.import_module(package), folder_name))
        if (folder / program).is_file():
            return folder / program
    raise MissingToolError(
        f"The program {program} is not installed in armload's environment.",
        f"Install it: {pip_install(package)}",
    )


def _run_here(script: str) -> str:
    cmake = tool("cmake", "CMAKE_BIN_DIR", "cmake").parent
    done = subprocess.run(
        ["sh", "-c", script],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        env={"PATH": f"{cmake}{os.pathsep}{os.environ.get('PATH', os.defpath)}"},
        check=False,
    )
    return done.stdout
