"""The compiler: zig, which makes static programs for any ARM board on any laptop."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from armload.build.target import Target
from armload.core import shell
from armload.core.errors import MissingToolError
from armload.core.values import Value
from armload.core.workspace import cache_folder


class Zig(Value):
    """zig as a C and C++ compiler, from its Python package.

    Attributes:
        version: of the package.
        triple: what it makes code for, in zig's words.
    """

    version: str
    triple: str = "aarch64-linux-musl"

    @property
    def label(self) -> str:
        """Name and version for people."""
        return f"zig {self.version}"

    def cpu_flags(self, target: Target) -> list[str]:
        """Return the flags that make code for the target's CPU; zig writes ``_`` for ``-``."""
        return [f"-mcpu={target.cpu.replace('-', '_')}", *target.cflags]

    def install(self, folder: Path) -> Mapping[str, str]:
        """Write small programs that call zig into ``folder`` and return CMake's variables.

        CMake wants a compiler to be one program, and zig is one with a subcommand.
        """
        zig = _zig_program()
        cache = shell.quote(cache_folder() / "zig")
        folder.mkdir(parents=True, exist_ok=True)
        variables = {
            "CMAKE_SYSTEM_NAME": "Linux",
            "CMAKE_SYSTEM_PROCESSOR": self.triple.partition("-")[0],
            # Whatever this machine has installed is for this machine.
            "CMAKE_FIND_ROOT_PATH": str(folder / "nothing"),
            "CMAKE_FIND_ROOT_PATH_MODE_LIBRARY": "ONLY",
            "CMAKE_FIND_ROOT_PATH_MODE_INCLUDE": "ONLY",
            "CMAKE_FIND_ROOT_PATH_MODE_PACKAGE": "ONLY",
        }
        for variable, words in {
            "CMAKE_C_COMPILER": ["cc", "-target", self.triple],
            "CMAKE_CXX_COMPILER": ["c++", "-target", self.triple],
            "CMAKE_ASM_COMPILER": ["cc", "-target", self.triple],
            "CMAKE_AR": ["ar"],
            "CMAKE_RANLIB": ["ranlib"],
        }.items():
            script = folder / f"zig-{words[0]}"
            script.write_text(
                "#!/bin/sh\n"
                f"ZIG_GLOBAL_CACHE_DIR={cache}\nZIG_LOCAL_CACHE_DIR={cache}\n"
                "export ZIG_GLOBAL_CACHE_DIR ZIG_LOCAL_CACHE_DIR\n"
                f'exec {shell.join([zig, *words])} "$@"\n',
                encoding="utf-8",
            )
            script.chmod(0o755)
            variables[variable] = str(script)
        if shutil.which("ccache"):
            variables["CMAKE_C_COMPILER_LAUNCHER"] = "ccache"
            variables["CMAKE_CXX_COMPILER_LAUNCHER"] = "ccache"
        return variables

    def environment(self) -> Mapping[str, str]:
        """Return environment variables for ccache, which cannot look into a shell script."""
        return {
            "CCACHE_COMPILERTYPE": "clang",
            "CCACHE_COMPILERCHECK": f"string:zig {self.version} {self.triple}",
        }


def find_zig() -> Zig:
    """Return the installed zig.

    Raises:
        MissingToolError: there is none.
    """
    try:
        return Zig(version=metadata.version("ziglang"))
    except metadata.PackageNotFoundError as error:
        raise MissingToolError(
            "The compiler zig is not installed beside armload.",
            "Install armload's own packages again: pip install ziglang.",
        ) from error


def tool(package: str, folder_name: str, program: str) -> Path:
    """Return a program that a Python package carries, whatever else this machine has.

    Raises:
        MissingToolError: the package is not installed.
    """
    if importlib.util.find_spec(package) is not None:
        folder = Path(getattr(importlib.import_module(package), folder_name))
        if (folder / program).is_file():
            return folder / program
    raise MissingToolError(
        f"The program {program} is not installed beside armload.",
        f"Install armload's own packages again: pip install {package}.",
    )


def _zig_program() -> Path:
    spec = importlib.util.find_spec("ziglang")
    if spec is None or spec.origin is None:
        raise MissingToolError(
            "The compiler zig is not installed beside armload.",
            "Install armload's own packages again: pip install ziglang.",
        )
    return Path(spec.origin).parent / "zig"
