"""A configuration as options of a plan file, in words, and as a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from armload.bench.options import Options
from armload.core.errors import UsageError
from armload.core.files import file_name_of, unreadable, write_whole
from armload.core.values import counted, format_bytes
from armload.engines.plan import MICRO_BATCH_TOKENS, NO_SPECULATION
from armload.tuning.record import SearchResult, Tuning
from armload.tuning.space import Choice, Setting
from armload.tuning.wanted import AIMS, SERVED

NO_REPACKING = "--no-repack"

_BY_ITSELF: dict[str, Choice] = {
    "batch": 2048,
    "engine_args": "",
    "flash_attention": "auto",
    "kv_type": "f16",
    "micro_batch": MICRO_BATCH_TOKENS,
    "slots": 4,
    "speculate": NO_SPECULATION,
}
"""What happens where an option is left out."""

_KEEPS_TEXT = frozenset(("threads", "cpus", "numa", "resident"))
"""Options that must not change a single token. The others choose other kernels, of which one may
round a near tie to another token."""

_SCORED = ("kv_type", "flash_attention", "micro_batch")
"""Options that change the distributions of tokens, and that the scorer has, too."""


def options_of(setting: Setting) -> Options:
    given = {name: choice for name, choice in setting.choices.items() if choice is not None}
    return Options.model_validate(given)


def differing(setting: Setting, defaults: Setting) -> dict[str, Choice]:
    """Return the choices that are not those of the defaults."""
    return {
        name: choice
        for name, choice in setting.choices.items()
        if _meant(name, choice) != _meant(name, defaults.choices.get(name))
    }


def keeps_text(setting: Setting, defaults: Setting) -> bool:
    """Say whether the text must be that of the defaults, token by token."""
    return differing(setting, defaults).keys() <= _KEEPS_TEXT


def scored(setting: Setting, defaults: Setting) -> dict[str, Choice]:
    """Return the choices that change the distributions of tokens; empty where none does."""
    different = differing(setting, defaults)
    return {name: different[name] for name in _SCORED if name in different}


def words_of(setting: Setting, defaults: Setting, core_sets: Mapping[str, str]) -> str:
    """Say what is not as in the defaults: ``4 threads on the big cluster, KV cache q8_0``.

    Args:
        core_sets: what sets of cores are called.
    """
    different = differing(setting, defaults)
    parts = []
    threads, cores = different.pop("threads", None), different.pop("cpus", None)
    where = f"on {core_sets.get(str(cores), f'cores {cores}')}" if cores is not None else ""
    if threads is not None:
        parts.append(f"{counted(int(threads), 'thread')} {where}".strip())
    elif where:
        parts.append(where)
    parts += [_phrase(name, choice) for name, choice in different.items()]
    return ", ".join(parts) or "the defaults"


def _meant(name: str, choice: Choice) -> Choice:
    return None if choice == _BY_ITSELF.get(name, choice is None) else choice


def _phrase(name: str, choice: Choice) -> str:
    match name:
        case "engine_args":
            return "no repacking" if choice == NO_REPACKING else f"engine arguments {choice!r}"
        case "resident" if isinstance(choice, int):
            return f"{format_bytes(choice)} resident"
        case "speculate":
            return f"speculation {choice or NO_SPECULATION}"
        case "slots" if isinstance(choice, int):
            return counted(choice, "slot")
        case "context":
            return f"context {choice}"
        case "kv_type":
            return f"KV cache {choice}"
        case _:
            return f"{name.replace('_', '-')} {choice}"


_MARK = "Found by armload tune"


def default_path(board: str, model: str) -> Path:
    """Return the file's name where a person gave none."""
    stem = file_name_of(model.removesuffix(".gguf"))
    return Path(f"tuned-{board}-{stem}.yaml")


def check_path(path: Path) -> None:
    """Refuse to replace a file that no search has written."""
    if not path.exists():
        return
    try:
        is_ours = path.is_file() and path.read_bytes().startswith(f"# {_MARK}".encode())
    except OSError as error:
        raise unreadable(path, error) from error
    if not is_ours:
        raise UsageError(
            f"{path} already exists, and was not written by armload tune.",
            "Delete it, or give another name with --output.",
        )


def write_plan(path: Path, tuning: Tuning, result: SearchResult) -> None:
    """Write the winner's options, and what was done with them, where they were found, and how.

    What a service was asked is no option of ``bench`` or ``serve``, and is a comment.
    """
    work = {name: each for name, each in tuning.work.items() if each is not None}
    is_served = tuning.objective in SERVED
    content: dict[str, Any] = {"board": tuning.board, "model": tuning.model_reference}
    if not is_served:
        content.update(work)
    choices = result.winner.choices
    content.update({name: each for name, each in choices.items() if each is not None})
    load = ", ".join(f"{name.replace('_', '-')} {each}" for name, each in work.items())
    about = (
        f"{_MARK} on board {tuning.board}, {tuning.started_utc[:10]}.",
        f"For: {AIMS[tuning.objective].cost}. {result.sentence}",
        *([f"Load: {load}."] if is_served else []),
        f"Model: {tuning.model} (sha256 {tuning.model_sha256[:12]}).",
        f"Engine: {tuning.engine}.",
        f"Search: {tuning.id}, {counted(result.trials, 'trial')}.",
    )
    comment = "".join("# " + line.replace("\n", " ") + "\n" for line in about)
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    write_whole(path, (comment + text).encode())
