"""zig as a C and C++ compiler: it comes as a Python package and makes code for any machine."""

from __future__ import annotations

import hashlib
import importlib.util
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from armload.build.target import Target, machine_architecture
from armload.build.vulkan import GLIBC, VulkanTools
from armload.core import shell
from armload.core.errors import MissingToolError
from armload.core.shell import pip_install
from armload.core.values import Value
from armload.core.workspace import compiling_folder


class Zig(Value):
    """The compiler ``zig``.

    Attributes:
        version: of the package.
        triple: what it makes code for, in zig's words.
        vulkan: with which it makes programs for GPUs; none for static ones.
    """

    version: str
    triple: str
    vulkan: VulkanTools | None = None

    @property
    def label(self) -> str:
        return f"zig {self.version}" + (f", glibc {GLIBC}, Vulkan" if self.vulkan else "")

    @property
    def identity(self) -> str:
        """Says all that decides which code it makes; zig brings the C library with it."""
        shaders = f" {self.vulkan.identity}" if self.vulkan else ""
        return f"zig {self.version} {self.triple}{shaders}"

    @property
    def tools(self) -> Mapping[str, str]:
        return {"ziglang": self.version}

    def cpu_flags(self, target: Target) -> list[str]:
        """Return the flags that make code for the target's CPU; zig writes ``_`` for ``-``."""
        return [f"-mcpu={target.cpu.replace('-', '_')}"]

    def definitions(self, target: Target) -> Mapping[str, str]:
        """Return CMake's variables; write the small programs that they name into the cache.

        CMake wants a compiler to be one program, and zig is one with a subcommand.
        """
        spec = importlib.util.find_spec("ziglang")
        if spec is None or spec.origin is None:
            raise _missing()
        zig = Path(spec.origin).parent / "zig"
        cache = shell.quote(compiling_folder("zig"))
        commands = {
            # Without it, CMake's first programs would get libraries of their own: zig compiles
            # some of them differently for programs that are not optimised.
            "zig-cc": ("cc", "-target", self.triple, "-O2"),
            "zig-c++": ("c++", "-target", self.triple, "-O2"),
            "zig-ar": ("ar",),
            "zig-ranlib": ("ranlib",),
        }
        if self.vulkan:
            here = f"{machine_architecture()}-linux-musl"
            commands["zig-c++-here"] = ("c++", "-target", here, "-O2")
            commands["zig-cc-here"] = ("cc", "-target", here, "-O2")
        scripts = {
            name: "#!/bin/sh\n"
            f"ZIG_GLOBAL_CACHE_DIR={cache}\n"
            ': "${ZIG_LOCAL_CACHE_DIR:=$ZIG_GLOBAL_CACHE_DIR}"\n'
            "export ZIG_GLOBAL_CACHE_DIR ZIG_LOCAL_CACHE_DIR\n"
            f'exec {shell.join([zig, *words])} "$@"\n'
            for name, words in commands.items()
        }
        folder = _written(scripts)
        variables = {
            "CMAKE_SYSTEM_NAME": "Linux",
            "CMAKE_SYSTEM_PROCESSOR": target.architecture,
            "CMAKE_C_COMPILER": str(folder / "zig-cc"),
            "CMAKE_CXX_COMPILER": str(folder / "zig-c++"),
            "CMAKE_ASM_COMPILER": str(folder / "zig-cc"),
            "CMAKE_AR": str(folder / "zig-ar"),
            "CMAKE_RANLIB": str(folder / "zig-ranlib"),
        }
        if self.vulkan:
            variables["ARMLOAD_VULKAN"] = str(self.vulkan.folder)
            variables["ARMLOAD_C_HERE"] = str(folder / "zig-cc-here")
            variables["ARMLOAD_CXX_HERE"] = str(folder / "zig-c++-here")
        return variables

    def environment(self) -> Mapping[str, str]:
        """Return environment variables for ccache, which cannot look into a shell script."""
        return {"CCACHE_COMPILERTYPE": "clang", "CCACHE_COMPILERCHECK": f"string:{self.identity}"}


def find_zig(target: Target, vulkan: VulkanTools | None = None) -> Zig:
    try:
        version = metadata.version("ziglang")
    except metadata.PackageNotFoundError as error:
        raise _missing() from error
    library = f"gnu.{GLIBC}" if vulkan else "musl"
    triple = f"{target.architecture}-linux-{library}"
    return Zig(version=version, triple=triple, vulkan=vulkan)


def _missing() -> MissingToolError:
    return MissingToolError(
        "The compiler zig is not installed in armload's environment.",
        f"Install it: {pip_install('ziglang')}",
    )


def _written(scripts: Mapping[str, str]) -> Path:
    # All builds call the compiler by one path, or ccache would take it for several compilers.
    digest = hashlib.sha256("\0".join(scripts.values()).encode()).hexdigest()
    place = compiling_folder("compilers") / f"zig-{digest[:12]}"
    if not place.is_dir():
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent, ignore_cleanup_errors=True) as name:
            fresh = Path(name) / place.name
            fresh.mkdir()
            for script, text in scripts.items():
                (fresh / script).write_text(text, encoding="utf-8")
                (fresh / script).chmod(0o755)
            with suppress(OSError):  # another armload was quicker
                fresh.rename(place)
    return place
