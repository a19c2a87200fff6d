"""All figures that some runs give."""

from __future__ import annotations

from collections.abc import Sequence

from armload.report.cells import Cell
from armload.report.figures.distribution import distribution
from armload.report.figures.figure import Figure
from armload.report.figures.free_memory import free_memory
from armload.report.figures.memory import memory
from armload.report.figures.memory_parts import memory_parts
from armload.report.figures.models import models
from armload.report.figures.over_time import over_time
from armload.report.figures.storage_wait import storage_wait
from armload.report.figures.threads import threads


def storage_figures(cells: Sequence[Cell]) -> list[Figure]:
    """Return those that runs give which read their weights from storage."""
    drawn = (storage_wait(cells), memory_parts(cells), free_memory(cells))
    return [figure for figure in drawn if figure]


def figures_of(cells: Sequence[Cell]) -> list[Figure]:
    """Return the figures in the order in which a person reads them, results first."""
    drawn = (
        threads(cells, "decode"),
        threads(cells, "prefill"),
        models(cells),
        over_time(cells),
        storage_wait(cells),
        distribution(cells),
        memory_parts(cells) or memory(cells),
        free_memory(cells),
    )
    return [figure for figure in drawn if figure]
