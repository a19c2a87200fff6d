"""Reads CMake files as far as it takes to know which programs a project would build.

Followed are ``if``, ``set``, ``option``, ``add_subdirectory`` and ``add_executable``. A condition
of more than names, ``NOT``, ``AND`` and ``OR``, or that asks for a platform, counts as false.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

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
