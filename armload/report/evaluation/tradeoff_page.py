"""Two models at equal latency, as a page that opens anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from armload import __version__
from armload.analysis.tradeoff import by_budget
from armload.core.files import file_name_of, write_whole
from armload.core.workspace import reports_folder
from armload.evaluation.sides import Side, Tradeoff
from armload.report.evaluation.deadlines import deadline_figure
from armload.report.evaluation.table import between, percent
from armload.report.evaluation.tradeoff import (
    axis_line,
    boxed_words,
    deadline_line,
    doubts,
    way_line,
)
from armload.report.figures.figure import Figure
from armload.report.html import render

TEMPLATE_NAME = "evaluation/tradeoff.html.j2"


def write_tradeoff_page(sides: tuple[Side, Side], tradeoffs: Sequence[Tradeoff]) -> Path:
    """Write the page into the folder of reports, over that of the same two models; return it."""
    names = "-".join(side.model.removesuffix(".gguf") for side in sides)
    name = file_name_of(f"tradeoff-{sides[0].task}-{names}")
    page = reports_folder() / f"{name}.html"
    page.parent.mkdir(parents=True, exist_ok=True)
    write_whole(page, render_tradeoff_page(sides, tradeoffs).encode())
    return page


def render_tradeoff_page(sides: tuple[Side, Side], tradeoffs: Sequence[Tradeoff]) -> str:
    """Return the page: for each way in which both were asked, the curves, points and tests."""
    figures = [_figure(number, each) for number, each in enumerate(tradeoffs)]
    values = {
        "headline": f"{sides[0].task}: {tradeoffs[0].a.name} or {tradeoffs[0].b.name}",
        "version": __version__,
        "sides": sides,
        "doubts": doubts(tradeoffs),
        "ways": [
            {
                "name": way_line(each),
                "figure": figure,
                "sentences": [
                    each.crossover.statement,
                    *(deadline_line(each, one) for one in each.deadlines),
                    *([axis_line(each.axis)] if each.axis else []),
                ],
                "systems": [(system.name, by_budget(system)) for system in (each.a, each.b)],
            }
            for each, figure in zip(tradeoffs, figures, strict=True)
        ],
        "percent": percent,
        "between": between,
        "boxed_words": boxed_words,
    }
    return render(TEMPLATE_NAME, values, {figure.name: figure.specification for figure in figures})


def _figure(number: int, each: Tradeoff) -> Figure:
    figure = deadline_figure((each.a, each.b), each.crossover)
    return replace(figure, name=f"{figure.name}-{number}")
