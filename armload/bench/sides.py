"""What a person means by one side of a comparison."""

from __future__ import annotations

from pathlib import Path

from armload.bench import store
from armload.bench.figures import Figures, figures_of
from armload.bench.foreign.read import read_foreign
from armload.bench.references import folders_of, single_words


def read_side(words: str) -> list[Figures]:
    """Return the measurements of one side.

    Args:
        words: a run, as ``store.find`` takes it; a file that another engine's benchmark wrote;
            or several of them with commas between, which are repeats.

    Raises:
        UsageError: there is no such run.
        DataError: a file is malformed, or of a newer format.
    """
    return [figures for reference in single_words(words) for figures in _read_one(reference)]


def _read_one(reference: str) -> list[Figures]:
    path = Path(reference)
    if path.is_file() and path.name != store.RUN_FILE:
        return read_foreign(path)
    return [figures_of(store.load(folder)) for folder in folders_of(reference)]
