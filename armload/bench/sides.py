"""What a person means by one side of a comparison."""

from __future__ import annotations

from pathlib import Path

from armload.bench import store
from armload.bench.figures import Figures, figures_of
from armload.bench.foreign.read import read_foreign
from armload.core.errors import UsageError


def read_side(words: str) -> list[Figures]:
    """Return the measurements of one side.

    Args:
        words: a run, as ``store.find`` takes it; a file that another engine's benchmark wrote;
            or several of them with commas between, which are repeats.

    Raises:
        UsageError: there is no such run.
        DataError: a file is malformed, or of a newer format.
    """
    references = [words] if Path(words).exists() else words.split(",")
    figures = []
    for reference in references:
        if not reference.strip():
            raise UsageError(
                f"{words!r}: a run's name is missing beside a comma.",
                "Several runs of one side are written A1,A2,A3.",
            )
        figures += _read_one(reference.strip())
    return figures


def _read_one(reference: str) -> list[Figures]:
    path = Path(reference)
    if path.is_file():
        if path.name != store.RUN_FILE:
            return read_foreign(path)
        path = path.parent
        return [figures_of(store.load(path))]
    return [figures_of(store.load(store.find(reference)))]
