"""What a value may name: boards, models, runs and files that are there now."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from armload.cli.completion.table import CompletionTable
from armload.core.defaults import LIBRARIES
from armload.core.workspace import (
    RUN_FILE,
    data_files,
    data_names,
    evaluations_folder,
    imports_folder,
    loads_folder,
    runs_folder,
    sweeps_folder,
    tunings_folder,
)
from armload.models.hub_cache import kept_models
from armload.models.published import PUBLISHED

_MOST_RUNS = 200
_LIKE, _DRAFT = "like:", "draft:"
_FILES: Mapping[str, str | tuple[str, ...]] = {
    "file": "",
    "folder": "/",
    "model": ".gguf",
    "measurement": (".json", ".jsonl"),
    "result": RUN_FILE,
    "results": RUN_FILE,
    "source": "/",
    "reader": ".yaml",
    "task": ".yaml",
}
"""Endings of files that can be given instead of a name; ``/`` for folders only."""


class CompletionWord(NamedTuple):
    """A word that can follow.

    Attributes:
        word: the whole of it, not only what is still to be typed.
        about: for people.
        is_whole: a further word can follow it.
    """

    word: str
    about: str = ""
    is_whole: bool = True


def open_ended(word: str) -> CompletionWord:
    """Return a candidate that goes on where it ends in a colon."""
    return CompletionWord(word, is_whole=not word.endswith(":"))


def names(taken: str, typed: str, table: CompletionTable) -> Iterator[CompletionWord]:
    """Yield what a value can be; not all of it begins with what is typed.

    Args:
        taken: what the value names, as in the table.
    """
    if taken == "draft" and typed.startswith(_DRAFT):
        for each in names("model", typed.removeprefix(_DRAFT), table):
            yield each._replace(word=_DRAFT + each.word)
    elif taken == "model":
        yield from _models(typed, table)
    elif taken in _NAMES:
        yield from map(CompletionWord, _NAMES[taken]())
        if taken == "hardware":
            yield from map(CompletionWord, table["hardware"])
    elif taken in _RESULTS:
        yield from _results(_RESULTS[taken], typed)
    if taken in _FILES:
        files = sorted(_files(typed, _FILES[taken]))
        # Before a path is begun, most folders of a workspace hold no results.
        is_chosen = taken in {"measurement", "result"} and "/" not in typed
        yield from filter(_is_result, files) if is_chosen else files


def _results(folders: Mapping[str, Callable[[], Path]], typed: str) -> Iterator[CompletionWord]:
    for latest, folder in folders.items():
        kind = latest.partition("-")[2]
        if any(f"-{kind}-" in name or not kind for name in _newest(folder(), "")):
            yield CompletionWord(latest)
    for folder in folders.values():
        yield from map(CompletionWord, _newest(folder(), typed))
    if runs_folder in folders.values():
        yield from map(open_ended, _of_boards(has_board=":" in typed))


def _models(typed: str, table: CompletionTable) -> Iterator[CompletionWord]:
    name, colon, _ = typed.removeprefix(_LIKE).partition(":")
    if typed.startswith(_LIKE) and colon:
        yield from (CompletionWord(f"{_LIKE}{name}:{each}") for each in table["file_types"])
    elif typed.startswith(_LIKE):
        for each in data_names("shapes"):
            yield open_ended(f"{_LIKE}{each}:")
    else:
        yield from map(open_ended, table["models"])
        for each, (_, file_types) in PUBLISHED.items():
            yield from (CompletionWord(f"{each}:{file_type}") for file_type in file_types)
        yield from map(CompletionWord, sorted(set(kept_models())))


def _is_result(each: CompletionWord) -> bool:
    folders = {f"{folder().name}/" for folder in (*_RESULTS["result"].values(), imports_folder)}
    return each.is_whole or each.word in folders or _holds((Path(each.word) / RUN_FILE).is_file)


def _files(typed: str, ending: str | tuple[str, ...]) -> Iterator[CompletionWord]:
    name = typed.rpartition("/")[2]
    before = typed[: len(typed) - len(name)]
    for entry in _entries(Path(before).expanduser()):
        if entry.name.startswith(".") and not name.startswith("."):
            continue
        if _holds(entry.is_dir):
            yield CompletionWord(f"{before}{entry.name}/", is_whole=False)
        elif entry.name.endswith(ending):
            yield CompletionWord(before + entry.name)


def _newest(folder: Path, typed: str) -> list[str]:
    found = [entry.name for entry in _entries(folder) if entry.name.startswith(typed)]
    return sorted((name for name in found if name[0] != "."), reverse=True)[:_MOST_RUNS]


def _of_boards(*, has_board: bool) -> Iterator[str]:
    """Yield ``BOARD:MODEL`` for what was run on boards; ``BOARD:`` before a board is typed."""
    boards = sorted(data_names("boards"), key=len, reverse=True)  # "virtual" begins others, too
    found = set[str]()
    for run in _newest(runs_folder(), ""):
        names = run.partition("-")[2].rpartition("-")[0]
        board = next((each for each in boards if names.startswith(f"{each}-")), "")
        if board:
            found.add(f"{board}:{names.removeprefix(f'{board}-') if has_board else ''}")
    yield from sorted(found)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _holds(check: Callable[[], bool]) -> bool:
    try:
        return check()
    except OSError:  # in a folder of somebody else's, or a link in a circle
        return False


def _of_data(kind: str) -> Callable[[], Iterable[str]]:
    return lambda: data_names(kind)


_EXTENDS = re.compile(r"^extends:\s*[\"']?([^\s\"'#]+)", re.MULTILINE)
_VIRTUAL = re.compile(r"\bkind:\s*[\"']?virtual\b")


def _is_virtual(board: str, passed: Collection[Path] = ()) -> bool:
    """Tell from the words of a board's file, and of those it extends: YAML takes too long."""
    for path in data_files("boards", board):
        if path not in passed:
            try:
                text = path.read_text(encoding="utf-8")
            except (OSError, ValueError):
                return False
            base = _EXTENDS.search(text)
            is_virtual = _VIRTUAL.search(text) is not None
            return is_virtual or (base is not None and _is_virtual(base[1], (*passed, path)))
    return False


_NAMES: Mapping[str, Callable[[], Iterable[str]]] = {
    "board": _of_data("boards"),
    "hardware": _of_data("hardware"),
    "reader": _of_data("readers"),
    "shape": _of_data("shapes"),
    "source": lambda: (each for each in data_names("toolchains/sources") if each not in LIBRARIES),
    "target": _of_data("toolchains"),
    "task": _of_data("tasks"),
    "virtual board": lambda: filter(_is_virtual, data_names("boards")),
}
_LATEST: Mapping[str, Callable[[], Path]] = {
    "latest": runs_folder,
    "latest-sweep": sweeps_folder,
    "latest-eval": evaluations_folder,
    "latest-load": loads_folder,
    "latest-tune": tunings_folder,
}
_RESULTS: Mapping[str, Mapping[str, Callable[[], Path]]] = {
    "run": {"latest": runs_folder},
    "evaluation": {"latest": evaluations_folder},
    "measurement": {word: _LATEST[word] for word in _LATEST if word != "latest-eval"},
    "result": _LATEST,
    "results": _LATEST,
}
"""Where results lie, by the word for the latest of them."""
