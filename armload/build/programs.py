"""Which programs a llama.cpp can build, looked up in its own CMake files.

Followed are ``if``, ``set``, ``option``, ``add_subdirectory`` and ``add_executable``. A condition
of more than names, ``NOT``, ``AND`` and ``OR``, or that asks for a platform, counts as false.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from armload.build.archive import EngineProject
from armload.build.binary import Binary
from armload.build.source import BUILT_EXAMPLES
from armload.core.errors import UsageError
from armload.core.near_names import nearest_first
from armload.core.places import data_path

_COMMAND = re.compile(r"(\w+)[ \t]*\(((?:\"(?:\\.|[^\"\\])*\"|[^()\"]|\([^()]*\))*)\)")
_WORD = re.compile(r"\"(?:\\.|[^\"\\])*\"|[()]|[^\s()]+")
_TRUE = {"1", "ON", "YES", "TRUE", "Y"}


class Project:
    """A CMake project in a folder.

    Args:
        settings: a CMake file whose ``set`` commands count more than the project's defaults.
    """

    def __init__(self, folder: Path, *, settings: Path) -> None:
        self._folder = folder
        self._values = {
            words[0]: words[-1]
            for file in ("CMakeLists.txt", "ggml/CMakeLists.txt")
            for name, words in _commands(folder / file)
            if name == "option" and len(words) == 3
        }
        self._values |= {
            words[0]: words[1]
            for name, words in _commands(settings)
            if name == "set" and len(words) > 1
        }

    def executables(self, subfolder: str) -> list[str]:
        """Return the names of the programs that a folder of the project would build."""
        return list(_executables(self._folder / subfolder, self._values))


def _executables(folder: Path, inherited: dict[str, str]) -> Iterator[str]:
    values = dict(inherited)
    open_ifs: list[tuple[bool, bool]] = []  # is this branch taken, was one before it
    for name, words in _commands(folder / "CMakeLists.txt"):
        is_reached = all(taken for taken, _ in open_ifs)
        if name == "if":
            open_ifs.append((is_reached and _is_true(words, values), False))
        elif name in {"elseif", "else"} and open_ifs:
            taken, before = open_ifs.pop()
            was_taken = taken or before
            holds = name == "else" or _is_true(words, values)
            open_ifs.append((holds and not was_taken, was_taken))
        elif name == "endif" and open_ifs:
            open_ifs.pop()
        elif not is_reached or not words:
            continue
        elif name == "set" and len(words) > 1:
            values[words[0]] = words[1]
        elif name == "add_subdirectory":
            yield from _executables(folder / words[0], values)
        elif name == "add_executable":
            yield re.sub(r"\$\{(\w+)\}", lambda match: values.get(match[1], ""), words[0])


def _commands(file: Path) -> Iterator[tuple[str, list[str]]]:
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return
    text = re.sub(r"^((?:[^#\"\n]|\"[^\"\n]*\")*)#.*$", r"\1", text, flags=re.MULTILINE)
    for match in _COMMAND.finditer(text):
        yield match[1].lower(), [word.strip('"') for word in _WORD.findall(match[2])]


def _is_true(words: list[str], values: dict[str, str]) -> bool:
    for operator, holds in (("OR", any), ("AND", all)):
        if operator in words:
            at = words.index(operator)
            return holds(_is_true(side, values) for side in (words[:at], words[at + 1 :]))
    is_negated = words[:1] == ["NOT"]
    name = words[1:] if is_negated else words
    return len(name) == 1 and (values.get(name[0], name[0]).upper() in _TRUE) != is_negated


SCORER = "armload-score"
"""A program of armload's own, which is built beside llama.cpp's."""
SEEING_SCORER = "armload-score-media"
"""The same for items with images."""
DLLAMA = "armload-dllama"
"""A program of armload's own, with distributed-llama's code."""
_PROJECTS: Mapping[str, EngineProject] = {DLLAMA: "distributed-llama"}
"""Of programs that are not built from llama.cpp; on a group, their other nodes run the same one."""
MAIN_PROGRAMS = ("llama-completion", "llama-cli")
"""Programs that continue a prompt; the first that a source has is the one for measuring."""
_TRACED_MEDIA = (
    "mtmd_batch_encode(mtmd_batch * batch)",
    "mtmd_tokenize_from_parts(",
    "bool placeholder,",
)
_OTHER_NAMES = {
    # Since December 2025 llama-cli is a chat; before, it was what llama-completion is now.
    "llama-completion": "llama-cli",
    "rpc-server": "ggml-rpc-server",
    "ggml-rpc-server": "rpc-server",
}


def project_of_program(program: str) -> EngineProject:
    """Say from whose source a program is built."""
    return _PROJECTS.get(program, "llama.cpp")


def programs_offered(folder: Path, engine: EngineProject = "llama.cpp") -> list[str]:
    """Return the names of the programs that can be built from an engine's folder, sorted.

    Not among them are those that llama.cpp builds only with an option that is off in armload's
    builds, or on another platform.
    """
    if engine != "llama.cpp":
        return [program for program, project in _PROJECTS.items() if project == engine]
    overlay = data_path("toolchains", "overlay") / "CMakeLists.txt"
    project = Project(folder, settings=overlay)
    theirs = [name for part in ("tools", *BUILT_EXAMPLES) for name in project.executables(part)]
    own = [SCORER, SEEING_SCORER] if _traces_media(folder) else [SCORER]
    return sorted([*theirs, *own]) if theirs else []


def _traces_media(folder: Path) -> bool:
    """Tell whether libmtmd has what the overlay asks for before it traces images."""
    text = ""
    for name in ("mtmd.h", "mtmd-helper.h"):
        with suppress(OSError):
            text += (folder / "tools" / "mtmd" / name).read_text("utf-8", "replace")
    return all(each in text for each in _TRACED_MEDIA)


def programs_chosen(source: str, offered: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """Return the programs to build: those wanted, or the one for measuring; sorted.

    A program that upstream renamed is taken under the name that this source has for it.

    Args:
        offered: the names of the programs that it can build.
        wanted: names; empty for the program that measuring needs.
    """
    if not wanted:
        wanted = [program for program in (*MAIN_PROGRAMS, DLLAMA) if program in offered][:1]
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
        f"{source} has no program {wanted!r}.",
        f"It has: {nearest_first(wanted, offered)}.",
    )


def by_names(wanted: Sequence[str], built: Sequence[Binary]) -> Mapping[str, Binary]:
    """Return built programs by the names that they were asked for by."""
    known = {binary.program: binary for binary in built}
    return {name: known[name if name in known else _OTHER_NAMES[name]] for name in wanted}


def renamed(wanted: Sequence[str], built: Sequence[str]) -> list[str]:
    """Return a sentence for each program that was built under another name than it was asked."""
    return [
        f"This llama.cpp has no {program}; its {_OTHER_NAMES[program]} replaces it."
        for program in wanted
        if program not in built and _OTHER_NAMES.get(program) in built
    ]
