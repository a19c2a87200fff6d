"""All figures that some runs give."""

from __future__ import annotations

from collections.abc import Sequence

from armload.report.cells import Cell
from armload.report.figures.distribution import distribution
from armload.report.figures.figure import Figure
from armload.report.figures.memory import memory
from armload.report.figures.models import models
from armload.report.figures.over_time import over_time
from armload.report.figures.threads import threads


def figures_of(cells: Sequence[Cell]) -> list[Figure]:
    """Return the figures in the order in which a person reads them, results first."""
    drawn = (
        threads(cells, "decode"),
        threads(cells, "prefill"),
        models(cells),
        over_time(cells),
        distribution(cells),
        memory(cells),
    )
    return [figure for figure in drawn if figure]
