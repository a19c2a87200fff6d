"""A workstation whose owner has installed and exported all that could lead a build astray."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_LLD = """#!/bin/sh
case $* in
  *--help*) echo "  --dependency-file=<file>  Write a dependency file" ;;
  *) echo "LLD 14.0.6 (compatible with GNU linkers)" ;;
esac
"""
"""What CMake asks a linker, answered as LLVM's answers."""

_TRAP = """#!/bin/sh
echo "$0 $*" >>{calls}
exit 1
"""

_TRAPS = (
    *(
        "ar",
        "ranlib",
        "nm",
        "strip",
        "objcopy",
        "objdump",
        "readelf",
        "as",
        "ld",
        "ld.gold",
        "mold",
    ),
    *("ld.mold", "clang", "clang++", "cpp", "cmake", "ninja", "make", "pkg-config", "llvm-ar"),
    *("llvm-ranlib", "llvm-nm", "distcc", "sccache", "zig", "xcrun", "python3"),
)
_COMPILERS = ("cc", "c++", "gcc", "g++", "aarch64-linux-gnu-gcc", "aarch64-linux-gnu-g++")


class HostileEnvironment:
    """Programs, settings and variables.

    Attributes:
        variables: to be exported, ``PATH`` and ``HOME`` among them.
    """

    def __init__(self, folder: Path, path: str) -> None:
        self._calls = folder / "calls"
        self.folder = folder
        home, headers, programs = folder / "home", folder / "include", folder / "bin"
        for each in (home, headers, programs):
            each.mkdir(parents=True)
        self._install(programs)
        for header in ("stdio.h", "stdint.h", "string.h", "vector", "armload.h"):
            (headers / header).write_text("#error a header of another project\n")
        for library in ("libc.a", "libm.a", "libc.so.6", "libstdc++.so.6", "libm.so.6"):
            (headers / library).write_text("no library\n")
        _settle(home, folder / "nowhere")
        self.variables = _variables(folder / "nowhere", home, headers, self._toolchain(folder))
        self.variables["PATH"] = f"{programs}:{path}"

    def _install(self, programs: Path) -> None:
        texts = dict.fromkeys(_TRAPS, _TRAP.format(calls=self._calls)) | {"ld.lld": _LLD}
        for name, text in texts.items():
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        if ccache := shutil.which("ccache"):
            # Where Debian's folder of compilers' names comes first in PATH.
            for name in _COMPILERS:
                (programs / name).symlink_to(Path(ccache).resolve())

    def _toolchain(self, folder: Path) -> Path:
        file = folder / "toolchain.cmake"
        file.write_text('message(FATAL_ERROR "a toolchain of another project")\n')
        return file

    @property
    def trapped(self) -> list[str]:
        """The calls of programs that no build should call, save those that ask for a version."""
        lines = self._calls.read_text().splitlines() if self._calls.exists() else []
        return [line for line in lines if not line.endswith(" --version")]


def _settle(home: Path, nowhere: Path) -> None:
    """Write a person's settings, which lead nowhere."""
    for folder in (".ccache", ".config/ccache"):
        (home / folder).mkdir(parents=True)
        (home / folder / "ccache.conf").write_text(
            f"prefix_command = {nowhere}\ncompiler = {nowhere}\nread_only = true\n"
        )
    for package in ("Threads", "Armload"):
        registry = home / ".cmake" / "packages" / package
        registry.mkdir(parents=True)
        (registry / "one").write_text(f"{home}/{package}\n")
        (home / package).mkdir()
        (home / package / f"{package}Config.cmake").write_text('message(FATAL_ERROR "a package")\n')
    (home / ".gitconfig").write_text(
        "[core]\n\teol = crlf\n\tattributesFile = ~/attributes\n\tsparseCheckout = true\n"
        "[color]\n\tui = always\n[log]\n\tshowSignature = true\n"
        "[init]\n\tdefaultObjectFormat = sha256\n[fetch]\n\tprune = true\n"
        "[i18n]\n\tlogOutputEncoding = UTF-16\n"
    )
    (home / "attributes").write_text("* ident working-tree-encoding=UTF-16\n")


def _variables(nowhere: Path, home: Path, headers: Path, toolchain: Path) -> dict[str, str]:
    somewhere = dict.fromkeys(
        (
            *("CC", "CXX", "CPP", "LD", "AR", "RANLIB", "NM", "STRIP", "PKG_CONFIG", "ASM", "FC"),
            *("CMAKE_C_COMPILER_LAUNCHER", "CMAKE_CXX_COMPILER_LAUNCHER", "CMAKE_PROJECT_INCLUDE"),
            *("CMAKE_C_LINKER_LAUNCHER", "CMAKE_CXX_LINKER_LAUNCHER", "CMAKE_CONFIG_DIR"),
            *("CCACHE_PREFIX", "CCACHE_COMPILER", "CCACHE_DIR", "CCACHE_CONFIGPATH", "CCACHE_PATH"),
            *("CCACHE_LOGFILE", "CCACHE_TEMPDIR", "CCACHE_EXTRAFILES", "CCACHE_IGNOREHEADERS"),
            *("ZIG_LIB_DIR", "ZIG_LIBC", "ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR", "GIT_DIR"),
            *("GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_EXEC_PATH"),
            *("GIT_TEMPLATE_DIR", "GIT_SHALLOW_FILE", "GIT_ATTR_SOURCE", "DEPENDENCIES_OUTPUT"),
            *("SUNPRO_DEPENDENCIES", "GCC_EXEC_PREFIX", "SDKROOT", "DEVELOPER_DIR", "BASH_ENV"),
            *("ENV", "SHELL", "TMPDIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"),
            *(
                "CONDA_PREFIX",
                "CONDA_BUILD_SYSROOT",
                "HOMEBREW_PREFIX",
                "HOMEBREW_CELLAR",
                "PREFIX",
            ),
            *("VIRTUAL_ENV", "DESTDIR", "QEMU_LD_PREFIX", "PYTHONHOME", "LD_RUN_PATH", "LD_AUDIT"),
        ),
        str(nowhere),
    )
    lists = dict.fromkeys(
        (
            *("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "OBJC_INCLUDE_PATH", "LIBRARY_PATH"),
            *("COMPILER_PATH", "LD_LIBRARY_PATH", "CMAKE_PREFIX_PATH", "CMAKE_INCLUDE_PATH"),
            *("CMAKE_LIBRARY_PATH", "CMAKE_PROGRAM_PATH", "CMAKE_MODULE_PATH", "PKG_CONFIG_PATH"),
            *("PKG_CONFIG_LIBDIR", "PYTHONPATH", "Threads_DIR", "Threads_ROOT", "Armload_ROOT"),
        ),
        str(headers),
    )
    flags = dict.fromkeys(
        (
            *("CFLAGS", "CXXFLAGS", "CPPFLAGS", "ASMFLAGS", "LDFLAGS", "ARFLAGS", "ARCHFLAGS"),
            *("NIX_CFLAGS_COMPILE", "NIX_LDFLAGS", "CL", "DEBUG_CFLAGS"),
        ),
        f"-O0 -g -include {headers}/armload.h -fuse-ld=lld --no-such-option",
    )
    return {
        **somewhere,
        **lists,
        **flags,
        "HOME": str(home),
        "CMAKE_TOOLCHAIN_FILE": str(toolchain),
        "CMAKE_GENERATOR": "Unix Makefiles",
        "CMAKE_GENERATOR_TOOLSET": "host=x64",
        "CMAKE_BUILD_TYPE": "Debug",
        "CMAKE_BUILD_PARALLEL_LEVEL": "0",
        "CMAKE_EXPORT_COMPILE_COMMANDS": "ON",
        "CMAKE_COLOR_DIAGNOSTICS": "ON",
        "CLICOLOR_FORCE": "1",
        "VERBOSE": "1",
        "CCACHE_COMPILERCHECK": "none",
        "CCACHE_NOCOMPRESS": "1",
        "CCACHE_READONLY": "1",
        "CCACHE_EXTENSION": "object",
        "CCACHE_REMOTE_STORAGE": "http://127.0.0.1:9",
        "CCACHE_SECONDARY_STORAGE": "http://127.0.0.1:9",
        "CCC_OVERRIDE_OPTIONS": "# O0 +-DNDEBUG=3 +-g",
        "GCC_COMPARE_DEBUG": "-O1",
        "GCC_COLORS": "error=01;31",
        "QA_OVERRIDE_GCC3_OPTIONS": "+-g",
        "LDEMULATION": "elf_i386",
        "MAKEFLAGS": "n --trace",
        "GNUMAKEFLAGS": "-k",
        "MAKELEVEL": "3",
        "NINJA_STATUS": "%p ",
        "ZIG_VERBOSE_CC": "1",
        "ZIG_VERBOSE_LINK": "1",
        "SOURCE_DATE_EPOCH": "1234567890",
        "MACOSX_DEPLOYMENT_TARGET": "10.6",
        "CONDA_BUILD": "1",
        "GIT_CEILING_DIRECTORIES": "/",
        "GIT_DEFAULT_HASH": "sha256",
        "GIT_NAMESPACE": "other",
        "GIT_TRACE": "1",
        "GIT_ICASE_PATHSPECS": "1",
        "GIT_LITERAL_PATHSPECS": "1",
        "LANG": "de_DE.UTF-8",
        "LC_ALL": "tr_TR.UTF-8",
        "LANGUAGE": "de",
        "TZ": "Pacific/Kiritimati",
        "POSIXLY_CORRECT": "1",
        "CDPATH": "/tmp:/usr",
        "LLAMA_ARG_MODEL": str(nowhere),
        "LLAMA_ARG_THREADS": "-1",
        "QEMU_CPU": "cortex-a35",
        "QEMU_STRACE": "1",
    }


@contextmanager
def exported(hostile: HostileEnvironment, *, but: str = "") -> Iterator[None]:
    """Export all variables but one to what this process starts while the block runs."""
    with pytest.MonkeyPatch.context() as patch:
        for name, text in hostile.variables.items():
            if name != but:
                patch.setenv(name, text)
        yield
