"""What a person means by one side of a comparison."""

from __future__ import annotations

from pathlib import Path

from armload.analysis.benchmark_file import read_benchmark_file
from armload.analysis.measurement import measurement_of
from armload.analysis.repeats import judged_together
from armload.bench.references import folders_of, single_words
from armload.engines.measurement import Measurement
from armload.runs import store


def read_side(words: str) -> list[Measurement]:
    """Return the measurements of one side.

    Args:
        words: a run, as ``store.find`` takes it; a file that another engine's benchmark wrote;
            or several of them with commas between, which are repeats.

    Raises:
        UsageError: there is no such run.
        DataError: a file is malformed, or of a newer format.
    """
    return [figures for reference in single_words(words) for figures in _read_one(reference)]


def _read_one(reference: str) -> list[Measurement]:
    path = Path(reference)
    if path.is_file() and path.name != store.RUN_FILE:
        return read_benchmark_file(path)
    runs = [store.load(folder) for folder in folders_of(reference)]
    return [measurement_of(run) for run in judged_together(runs)]
