"""The plan file that a search ends with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from armload.core.errors import UsageError
from armload.core.files import file_name_of, unreadable, write_whole
from armload.core.values import counted
from armload.tuning.record import Result, Tuning
from armload.tuning.wanted import AIMS, SERVED

_MARK = "Found by armload tune"


def default_path(board: str, model: str) -> Path:
    """Return the file's name where a person gave none."""
    stem = file_name_of(model.removesuffix(".gguf"))
    return Path(f"tuned-{board}-{stem}.yaml")


def check_path(path: Path) -> None:
    """Refuse to replace a file that no search has written.

    Raises:
        UsageError: there is one.
        DiskError: it cannot be read.
    """
    if not path.exists():
        return
    try:
        is_ours = path.is_file() and path.read_bytes().startswith(f"# {_MARK}".encode())
    except OSError as error:
        raise unreadable(path, error) from error
    if not is_ours:
        raise UsageError(
            f"{path} exists already, and was not written by armload tune.",
            "Delete it, or give another name with --output.",
        )


def write_plan(path: Path, tuning: Tuning, result: Result) -> None:
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
