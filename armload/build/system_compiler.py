"""A compiler that a system has: the distribution's cross gcc, or an ARM machine's own compiler."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

from armload.build.environment import DECIDED
from armload.build.target import Target
from armload.core.errors import MissingToolError, UsageError
from armload.core.shell import quote, render
from armload.core.values import Value

_LIBRARIES = ("libc.a", "libstdc++.a", "libgcc.a")
_PROGRAMS = {"CMAKE_AR": "ar", "CMAKE_RANLIB": "ranlib"}
_DIGITS = 12


SystemCompilerName = Literal["gnu", "native"]


class Words(NamedTuple):
    """What a kind of compiler is called.

    Attributes:
        kind: ``gnu`` or ``native``.
        c, cxx: the programs.
        how_to_get: a sentence.
    """

    kind: SystemCompilerName
    c: str
    cxx: str
    how_to_get: str


class SystemCompiler(Value):
    """gcc, or what else answers to its name.

    Attributes:
        kind: ``gnu`` is a cross compiler, ``native`` the machine's own.
        c, cxx: whole paths of the programs.
        version: first line of what the C compiler says to ``--version``.
        libraries: SHA-256 of the C library, and of the compiler's own, that get linked.
        binutils: first lines of what its assembler and its linker say to ``--version``, by their
            kinds.
        programs: whole paths of what it works with, by CMake's variables.
        path: in which it finds its own programs, as the variable ``PATH`` has it.
    """

    kind: SystemCompilerName
    c: str
    cxx: str
    version: str
    libraries: Mapping[str, str]
    binutils: Mapping[str, str]
    programs: Mapping[str, str]
    path: str

    @property
    def label(self) -> str:
        return f"{self.kind} {self.version}"

    @property
    def identity(self) -> str:
        libraries = (f"{name} {sum_[:_DIGITS]}" for name, sum_ in sorted(self.libraries.items()))
        binutils = (f"{kind} {version}" for kind, version in sorted(self.binutils.items()))
        return ", ".join([self.label, *libraries, *binutils])

    @property
    def tools(self) -> Mapping[str, str]:
        return {self.kind: self.version}

    def cpu_flags(self, target: Target) -> list[str]:
        option = "-mcpu" if target.architecture == "aarch64" else "-march"
        return [f"{option}={target.cpu}"]

    def definitions(self, target: Target) -> Mapping[str, str]:
        variables = {"CMAKE_C_COMPILER": self.c, "CMAKE_CXX_COMPILER": self.cxx, **self.programs}
        if self.kind == "gnu":
            variables["CMAKE_SYSTEM_NAME"] = "Linux"
            variables["CMAKE_SYSTEM_PROCESSOR"] = target.architecture
        return variables

    def environment(self) -> Mapping[str, str]:
        return {"PATH": self.path}


class Machine(Value):
    """What a machine has for building.

    Attributes:
        answers: what the probing script printed for each of its keywords.
    """

    answers: Mapping[str, str]

    @property
    def cmake(self) -> str:
        return self.answers.get("cmake", "").removeprefix("cmake version ")

    @property
    def generator(self) -> str:
        """CMake's name of what drives the build here; empty where there is nothing."""
        if "ninja" in self.answers:
            return "Ninja"
        return "Unix Makefiles" if "make" in self.answers else ""

    @property
    def tools(self) -> Mapping[str, str]:
        """Versions of CMake and of what drives the build here, by the tool's name."""
        return {"cmake": self.cmake, self._driver: self.answers.get(self._driver, "")}

    @property
    def programs(self) -> Mapping[str, str]:
        """Whole paths of CMake and of what drives the build here, by CMake's variables."""
        tools = {"CMAKE_COMMAND": "cmake", "CMAKE_MAKE_PROGRAM": self._driver}
        return {name: self.answers.get(f"{tool}-program", "") for name, tool in tools.items()}

    @property
    def _driver(self) -> str:
        return "ninja" if self.generator == "Ninja" else "make"

    @property
    def ccache(self) -> str:
        return self.answers.get("ccache", "")

    @property
    def has_nice(self) -> bool:
        return "nice" in self.answers


def words_for(kind: SystemCompilerName, target: Target) -> Words:
    """Return what a kind of compiler is called that makes code for ``target``."""
    if kind == "native":
        how = "Install the system's C and C++ compilers (Debian: build-essential)."
        return Words(kind=kind, c="cc", cxx="c++", how_to_get=how)
    triple = f"{target.architecture}-linux-gnu"
    package = f"g++-{triple.replace('_', '-')}"
    return Words(
        kind=kind,
        c=f"{triple}-gcc",
        cxx=f"{triple}-g++",
        how_to_get=f"Install the distribution's cross compiler (Debian: {package}).",
    )


def asking_script(words: Words) -> str:
    """Return the shell script whose output ``read_machine`` reads.

    The compiler is asked in the environment that it will compile in: other variables lead gcc to
    other libraries.
    """
    script = render("build/compiler.sh.j2", {"c": words.c, "cxx": words.cxx})
    decided = {name: quote(text) for name, text in DECIDED.items()} | {"PATH": '"$PATH"'}
    given = " ".join(f"{name}={text}" for name, text in decided.items())
    return f"exec env -i {given} sh -c {quote(script)}"


def read_machine(output: str) -> Machine:
    """Read the output of the probing script; what is missing in it is not installed."""
    pairs = (line.partition(" ") for line in output.splitlines())
    return Machine(answers={word: rest.strip() for word, _, rest in pairs if rest.strip()})


def read_system_compiler(
    machine: Machine, words: Words, target: Target, *, where: str
) -> SystemCompiler:
    """Return the machine's compiler.

    Args:
        where: the machine, for messages, such as ``"this machine"``.

    Raises:
        MissingToolError: it is not there, or cannot link statically; says how to get it.
    """
    answers = machine.answers
    for word, program in (("c", words.c), ("cxx", words.cxx)):
        if word not in answers:
            raise MissingToolError(
                f"{where}: the compiler {program} is not installed.", words.how_to_get
            )
    made_for = re.sub(r"-.*", "", answers.get("machine", "unknown"))
    if made_for != target.architecture:
        raise UsageError(
            f"{where}: {words.c} compiles for {made_for}, but the target {target.name!r} is "
            f"{target.architecture}.",
            "Use --compiler gnu or, without --on, --compiler zig: both cross-compile.",
        )
    if "libc.a" not in answers:
        raise MissingToolError(
            f"{where}: {words.c} has no static C library (libc.a).",
            f"{words.how_to_get} Other distributions may have it in a separate package, such as "
            "glibc-static.",
        )
    return SystemCompiler(
        kind=words.kind,
        c=answers["c"],
        cxx=answers["cxx"],
        version=answers.get("version", "unknown"),
        libraries={name: answers[name] for name in _LIBRARIES if name in answers},
        binutils={kind: answers[kind] for kind in ("assembler", "linker") if kind in answers},
        programs={
            variable: answers[name]
            for variable, name in _PROGRAMS.items()
            if answers.get(name, "").startswith("/")
        },
        path=answers.get("path", DECIDED["PATH"]),
    )
