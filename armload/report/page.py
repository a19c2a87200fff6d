"""One run as a page that opens anywhere, without a network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from armload.analysis.run import Run
from armload.analysis.summary import generating, prompting
from armload.core.files import write_whole
from armload.deploy.layout import PROGRAM_FOLDER
from armload.engines.trace import Step
from armload.report import formatting as words
from armload.report.cells import cells_of
from armload.report.chart import token_chart
from armload.report.drawing import Specification, png
from armload.report.figures.every import storage_figures
from armload.report.pages import render
from armload.report.speculation import gain_lines, speculation_line
from armload.report.table import weights_line

PAGE_NAME, PICTURE_NAME = "report.html", "tokens.png"
TEMPLATE_NAME = "page.html.j2"
CHART_NAME = "tokens"
SLOWEST_SHOWN = 5


def write_report(run: Run, folder: Path) -> tuple[Path, Path | None]:
    """Write a run's page and picture into its folder, and return their paths.

    Without times per token there is nothing to draw, and no picture.
    """
    page, picture = folder / PAGE_NAME, folder / PICTURE_NAME
    has_tokens = bool(prompting(run.steps) or generating(run.steps))
    specification = token_chart(run) if has_tokens else None
    if specification is None:
        picture.unlink(missing_ok=True)
    else:
        write_whole(picture, png(specification))
    raw_files = sorted(
        str(path.relative_to(folder))
        for path in [*folder.iterdir(), *(folder / PROGRAM_FOLDER).rglob("*")]
        if path.is_file() and path != page and not path.name.startswith(".")
    )
    write_whole(page, render_page(run, specification, raw_files).encode())
    return page, picture if specification else None


def render_page(run: Run, specification: Specification | None, raw_files: Sequence[str]) -> str:
    """Return the page of one run.

    Args:
        specification: from ``chart.token_chart``; none without times per token.
        raw_files: names of the files beside the page to link to.
    """
    slowest, causes = _slowest(run.steps), words.causes_of(run)
    figures = storage_figures(cells_of([run]))
    charts = {figure.name: figure.specification for figure in figures}
    if specification:
        charts[CHART_NAME] = specification
    values = {
        "run": run,
        "speculation": speculation_line(run),
        "gains": gain_lines(run),
        "version": run.armload,
        "slowest": slowest,
        "causes": causes,
        "any_cause": any(step.step in causes for _, step in slowest),
        "raw_files": raw_files,
        "figures": figures,
        "weights": weights_line(run),
    }
    return render(TEMPLATE_NAME, values, charts)


def _slowest(steps: Sequence[Step]) -> list[tuple[int, Step]]:
    numbered: list[tuple[int, Step]] = []
    number = 1
    for step in generating(steps):
        number += step.output_tokens
        numbered.append((number, step))
    numbered.sort(key=lambda each: each[1].duration_s / each[1].output_tokens, reverse=True)
    return numbered[:SLOWEST_SHOWN]
