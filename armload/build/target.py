"""A CPU to build for: one YAML file in ``toolchains/``."""

from __future__ import annotations

import difflib
import platform
import re
import sys
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from armload.core.deciding import Decides, Words
from armload.core.errors import UsageError
from armload.core.values import Value
from armload.core.yamlfile import load_named

_CPUINFO = Path("/proc/cpuinfo")
# Linux, arch/arm64/kernel/cpuinfo.c.
# fmt: off
_FEATURES = frozenset((
    "fp", "asimd", "evtstrm", "aes", "pmull", "sha1", "sha2", "crc32", "atomics", "fphp",
    "asimdhp", "cpuid", "asimdrdm", "jscvt", "fcma", "lrcpc", "dcpop", "sha3", "sm3", "sm4",
    "asimddp", "sha512", "sve", "asimdfhm", "dit", "uscat", "ilrcpc", "flagm", "ssbs", "sb",
    "paca", "pacg", "dcpodp", "sve2", "sveaes", "svepmull", "svebitperm", "svesha3", "svesm4",
    "flagm2", "frint", "svei8mm", "svef32mm", "svef64mm", "svebf16", "i8mm", "bf16", "dgh",
    "rng", "bti", "mte", "ecv", "afp", "rpres", "mte3", "sme", "smei16i64", "smef64f64",
    "smei8i32", "smef16f32", "smeb16f32", "smef32f32", "smefa64", "wfxt", "ebf16", "sveebf16",
    "cssc", "rprfm", "sve2p1", "sme2", "sme2p1", "smei16i32", "smebi32i32", "smeb16b16",
    "smef16f16", "mops", "hbc", "sveb16b16", "lrcpc3",
))
# fmt: on
_ARCHITECTURES = {"aarch64": "aarch64", "arm64": "aarch64", "x86_64": "x86_64", "amd64": "x86_64"}


# What loads, includes, defines or names a file is not among them: a macro can become any code.
_HARMLESS_FLAG = re.compile(
    r"-O[0-3sz]|-Ofast|-g[0-3]?|-s|-static|-pipe|-pthread|-flto(=thin|=full|=auto)?"
    r"|-m(cpu|tune|arch|fpu|float-abi|branch-protection)=[A-Za-z0-9_.+-]+"
    r"|-m(no-)?(outline-atomics|fix-cortex-a53-835769|avx[0-9a-z]*|fma|f16c|bmi2?|sse[0-9a-z._]*)"
    r"|-f(no-)?(fast-math|finite-math-only|math-errno|trapping-math|signed-zeros|associative-math"
    r"|reciprocal-math|unroll-loops|vectorize|slp-vectorize|tree-vectorize|strict-aliasing"
    r"|omit-frame-pointer|exceptions|rtti|inline|inline-functions|lto|function-sections"
    r"|data-sections|stack-protector|stack-protector-strong|common|plt|semantic-interposition"
    r"|asynchronous-unwind-tables|unwind-tables|PIC|PIE|pic|pie)"
    r"|-ffp-contract=(on|off|fast)|-fvisibility=(default|hidden|protected)"
    r"|-std=(c|gnu)(\+\+)?[0-9a-z]+|-W(no-)?[a-z][a-z0-9+-]*|-Wl,--(gc-sections|as-needed|no-as-needed)"
)


def _are_harmless(flags: object) -> bool:
    return isinstance(flags, list) and all(
        isinstance(each, str) and _HARMLESS_FLAG.fullmatch(each) for each in flags
    )


Flags = Annotated[tuple[str, ...], Decides(unless=_are_harmless)]
"""Flags for a compiler, which may make it load or include what they name."""


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

    name: Words
    description: Words = ""
    architecture: Literal["aarch64", "x86_64", "host"] = "aarch64"
    # A semicolon would begin another flag.
    cpu: Words = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]*$")
    features: tuple[Words, ...] = ()
    must_use: tuple[Words, ...] = ()
    cflags: Flags = ()
    cxxflags: Flags = ()
    ldflags: Flags = ()

    @field_validator("features", "must_use")
    @classmethod
    def _are_features(cls, features: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if info.data.get("architecture") == "aarch64":
            for feature in features:
                if feature not in _FEATURES:
                    near = difflib.get_close_matches(feature, sorted(_FEATURES), n=1)
                    meant = f"; did you mean {near[0]!r}?" if near else ""
                    raise ValueError(
                        f"{feature!r} is not the name of a CPU feature in /proc/cpuinfo{meant}"
                    )
        return features


HOST = "host"
"""The target of this machine's own CPU."""


def load_target(name: str) -> Target:
    """Read the target called ``name``; what it leaves to this machine is filled in.

    Raises:
        UsageError: there is none, or this machine is none to build for.
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
            f"The target {target.name!r} is this machine, but armload builds for Linux on aarch64 "
            f"and x86_64 only; this is {platform.system()} on {platform.machine()}.",
            "Choose the target of a board, such as armv8-generic.",
        )
    # Those that every core has, in the order of the first core's list.
    cpuinfo = _CPUINFO.read_text(encoding="utf-8", errors="replace")
    found = re.findall(r"^(?:Features|flags)\s*:(.*)$", cpuinfo, re.MULTILINE)
    lists = [each.split() for each in found]
    common = set.intersection(*(set(each) for each in lists)) if lists else set()
    features = tuple(name for name in lists[0] if name in common) if lists else ()
    return target.model_copy(update={"architecture": architecture, "features": features})
