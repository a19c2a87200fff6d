"""Which programs a llama.cpp can build, looked up in its own CMake files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from armload.build.cmake import Project
from armload.build.source import BUILT_EXAMPLE
from armload.core.errors import UsageError
from armload.core.names import nearest_first
from armload.core.workspace import data_path

MAIN_PROGRAMS = ("llama-completion", "llama-cli")
"""Programs that continue a prompt; the first that a source has is the one for measuring."""
SCORER = "armload-score"
"""A program of armload's own, which is built beside llama.cpp's."""
_OTHER_NAMES = {
    # Since December 2025 llama-cli is a chat; before, it was what llama-completion is now.
    "llama-completion": "llama-cli",
    "rpc-server": "ggml-rpc-server",
    "ggml-rpc-server": "rpc-server",
}


def programs_offered(folder: Path) -> list[str]:
    """Return the names of the programs that can be built from a llama.cpp folder, sorted.

    Not among them are those that llama.cpp builds only with an option that is off in armload's
    builds, or on another platform.
    """
    overlay = data_path("toolchains", "overlay") / "CMakeLists.txt"
    project = Project(folder, settings=overlay)
    theirs = [name for part in ("tools", BUILT_EXAMPLE) for name in project.executables(part)]
    return sorted([*theirs, SCORER]) if theirs else []


def programs_chosen(source: str, offered: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """Return the programs to build: those wanted, or the one for measuring; sorted.

    A program that upstream renamed is taken under the name that this source has for it.

    Args:
        offered: the names of the programs that it can build.
        wanted: names; empty for the program that measuring needs.

    Raises:
        UsageError: the source does not have one of them.
    """
    if not wanted:
        wanted = [program for program in MAIN_PROGRAMS if program in offered][:1]
        if not wanted:
            raise UsageError(
                f"{source}: this llama.cpp has no program that continues a prompt "
                f"({', '.join(MAIN_PROGRAMS)}).",
                f"It has: {', '.join(offered)}."
                if offered
                else "It is too old: use llama.cpp of May 2025 or later.",
            )
    return sorted({_chosen(source, program, offered) for program in wanted})


def _chosen(source: str, wanted: str, offered: Sequence[str]) -> str:
    if wanted in offered:
        return wanted
    other = _OTHER_NAMES.get(wanted, "")
    if other in offered:
        return other
    raise UsageError(
        f"The llama.cpp of {source} has no program {wanted!r}.",
        f"It has: {nearest_first(wanted, offered)}.",
    )


def renamed(wanted: Sequence[str], built: Sequence[str]) -> list[str]:
    """Return a sentence for each program that was built under another name than it was asked."""
    return [
        f"This llama.cpp has no {program}; its {_OTHER_NAMES[program]} replaces it."
        for program in wanted
        if program not in built and _OTHER_NAMES.get(program) in built
    ]
