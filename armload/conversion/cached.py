"""Where quantised models and importance matrices lie in the cache, by what they are made of."""

from __future__ import annotations

import hashlib
import os
from functools import partial
from pathlib import Path

from pydantic import ValidationError

from armload.core.cache import CacheItem, CacheKind, disk_usage, entries, is_left_over, left_over
from armload.core.files import write_whole
from armload.core.places import cache_folder
from armload.core.progress import Progress
from armload.core.values import Value
from armload.engines.quantise import Fallback
from armload.models.model import cached_sha256

QUANTISED, IMPORTANCE, DISTRIBUTED = "quantised", "importance", "distributed"
"""Folders of the cache."""

RECORD = "made.json"
_GENERATION = "1"
_DIGITS = 16


class Artifact(Value):
    """A file that was made of a model, and what it was made of.

    Attributes:
        file: its name, in the record's folder.
        sha256, size_bytes: of the file.
        base: name of the model.
        type: of a quantised model; empty for an importance matrix.
        calibration: name of the text that the importance of weights was computed from; else empty.
        source: llama.cpp's, in words.
        board: where it was made.
        run: that made it; its files lie beside the record.
        fallbacks: tensors of another type than was meant for them.
        chunks: of the text, for an importance matrix.
    """

    file: str
    sha256: str
    size_bytes: int
    base: str
    type: str = ""
    calibration: str = ""
    source: str
    board: str
    run: str
    fallbacks: tuple[Fallback, ...] = ()
    chunks: int | None = None


def place_of(kind: str, *parts: str) -> Path:
    """Return the folder of what is made of these parts."""
    key = hashlib.sha256("\0".join((_GENERATION, *parts)).encode()).hexdigest()
    return cache_folder() / kind / key[:_DIGITS]


def lock_of(place: Path) -> Path:
    """Return the lock that is held while something is made there."""
    return place.with_name(f"{place.name}.lock")


def part_in(place: Path) -> Path:
    """Return the file that grows there until it is whole."""
    return place / "part"


def find_artifact(place: Path, progress: Progress) -> Artifact | None:
    """Return what is finished in a folder; none where nothing is, or it was changed since."""
    try:
        made = Artifact.model_validate_json((place / RECORD).read_bytes())
        same = cached_sha256(place / made.file, progress) == made.sha256
    except (FileNotFoundError, NotADirectoryError, ValidationError):
        return None
    return made if same else None


def keep(place: Path, made: Artifact) -> None:
    """Give the file that has grown in a folder its name, and note that it is finished."""
    path = place / made.file
    with part_in(place).open("rb+") as file:
        os.fsync(file.fileno())
    part_in(place).replace(path)
    write_whole(place / RECORD, (made.model_dump_json(indent=1) + "\n").encode())


def conversion_kinds() -> tuple[CacheKind, ...]:
    """Return what was made of models and lies in the cache."""
    return (
        CacheKind(
            name=QUANTISED,
            what="quantised models",
            again="quantising again",
            read=lambda: _items(QUANTISED),
        ),
        CacheKind(
            name=IMPORTANCE,
            what="importance matrices of models",
            again="a pass of the calibration text through the model",
            read=lambda: _items(IMPORTANCE),
        ),
        CacheKind(
            name=DISTRIBUTED,
            what="models in distributed-llama's format",
            again="converting again",
            read=lambda: _items(DISTRIBUTED),
        ),
    )


def _items(kind: str) -> tuple[CacheItem, ...]:
    folders = [path for path in entries(kind) if path.is_dir() and not is_left_over(path)]
    return (
        *(
            CacheItem(
                label=_label(path),
                paths=(path, *(lock for lock in [lock_of(path)] if lock.exists())),
                size_bytes=disk_usage([path]),
                locks=partial(dict, {lock_of(path): "another armload process is making it"}),
            )
            for path in folders
        ),
        *left_over(kind),
    )


def _label(place: Path) -> str:
    try:
        made = Artifact.model_validate_json((place / RECORD).read_bytes())
    except (OSError, ValidationError):
        return f"{place.name}, unfinished"
    return made.file if made.type else f"{made.file} of {made.base}"
