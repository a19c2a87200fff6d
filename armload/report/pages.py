"""Pages that open anywhere, and the folders that hold them with their figures as pictures."""

from __future__ import annotations

import base64
import contextlib
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

from armload.core.errors import UsageError
from armload.core.files import write_whole
from armload.core.progress import Progress, Silent
from armload.core.values import Value, visible
from armload.core.workspace import cache_folder, reports_folder
from armload.report import formatting as words
from armload.report.cell_table import CellTable
from armload.report.drawing import Specification, inline_svg, legible, png, svg, untitled
from armload.report.figures.figure import Figure

SCRIPTS = ("draw.js", "sort.js", "filter.js")


def render(template: str, values: Mapping[str, object], charts: Mapping[str, Specification]) -> str:
    """Return a page as HTML that needs no other file.

    Every text that came from a board or a file is escaped and cannot steer the text around it, and
    the page's policy lets no
    script run but the page's own, and nothing be fetched.

    Args:
        template: the name of a file in this folder, which extends ``base.html.j2``.
        charts: specifications by the names that it gives its charts; titles are left to the page.
    """
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("armload.report", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        # What is markup already has been here, or is a library.
        finalize=lambda value: visible(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    bare = {name: legible(untitled(chart)) for name, chart in charts.items()}
    script = (libraries() if charts else "") + "".join(map(_own, SCRIPTS))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    page = {
        "words": words,
        "charts": bare,
        # Drawn here; text in it is escaped.
        "stills": {name: Markup(inline_svg(chart)) for name, chart in bare.items()},  # noqa: S704
        "script": Markup(script),  # noqa: S704 - ours and the libraries', no text of a run
        "script_digest": digest,
    }
    return environment.get_template(template).render({**page, **values})


def libraries() -> str:
    """Return Vega, Vega-Lite and Vega-Embed as one script; bundling it takes a second."""
    kept = cache_folder() / "vega" / f"{version('vl-convert-python')}.js"
    with contextlib.suppress(OSError):
        return kept.read_text(encoding="utf-8")
    import vl_convert

    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    # A page's text ends a script at the first closing tag, and reads every line end as \n.
    script = bundle.replace("</script", r"<\/script").replace("\r\n", "\n").replace("\r", "\n")
    with contextlib.suppress(OSError):  # a cache that cannot be written only costs time
        write_whole(kept, script.encode())
    return script


def _own(name: str) -> str:
    return files("armload.report").joinpath(name).read_text(encoding="utf-8")


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A figure that was written."""

    figure: Figure
    png: Path
    svg: Path


def pictured(figure: Figure, folder: Path) -> Picture:
    """Write a figure into a folder."""
    picture = Picture(
        figure=figure, png=folder / f"{figure.name}.png", svg=folder / f"{figure.name}.svg"
    )
    write_whole(picture.png, png(figure.specification))
    write_whole(picture.svg, svg(figure.specification).encode())
    return picture


PAGE_NAME = "report.html"


@dataclass(frozen=True, kw_only=True)
class Report:
    """What was written, and what it says."""

    headline: str
    page: Path
    pictures: tuple[Picture, ...]
    table: CellTable


def check_report_folder(folder: Path) -> None:
    """Check that a report can be written into a folder, which may exist.

    Raises:
        UsageError: it is a file.
    """
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file.", "Name a folder for the report.")


def report_place(folder: Path | None, name: str) -> Path:
    """Return where the report on one thing goes: that folder, or one of its name among the reports.

    Raises:
        UsageError: it is a file.
    """
    place = folder or reports_folder() / name
    check_report_folder(place)
    return place


def write_report(
    folder: Path,
    figures: Sequence[Figure],
    render_page: Callable[[], str],
    progress: Progress | None,
    *,
    headline: str,
    table: CellTable,
) -> Report:
    """Write a page and the pictures of its figures into a folder.

    Args:
        folder: as ``check_report_folder`` accepts it.
    """
    pictures: list[Picture] = []
    with (progress or Silent()).step("drawing", total=len(figures) + 1, unit="figures") as step:
        for figure in figures:
            step.update(len(pictures), note=figure.name)
            pictures.append(pictured(figure, folder))
        step.update(len(pictures), note=PAGE_NAME)
        page = folder / PAGE_NAME
        write_whole(page, render_page().encode())
    return Report(headline=headline, page=page, pictures=tuple(pictures), table=table)


class WrittenFigure(Value):
    """A figure, what it says, and its pictures."""

    name: str
    sentence: str
    png: Path
    svg: Path


class WrittenReport(Value):
    """Where a report is, and what it says.

    Attributes:
        headline: the page's.
        page: the HTML file.
        figures: in the page's order.
        table: one row for each cell, its entries by the column's heading.
    """

    headline: str
    page: Path
    figures: tuple[WrittenFigure, ...]
    table: tuple[dict[str, int | float | str], ...]

    @classmethod
    def of(cls, written: Report) -> WrittenReport:
        """Describe a report."""
        headings = [column.heading for column in written.table.columns]
        return cls(
            headline=written.headline,
            page=written.page,
            figures=tuple(
                WrittenFigure(
                    name=picture.figure.name,
                    sentence=picture.figure.sentence,
                    png=picture.png,
                    svg=picture.svg,
                )
                for picture in written.pictures
            ),
            table=tuple(
                {
                    heading: entry.text if entry.number is None else entry.number
                    for heading, entry in zip(headings, row.entries, strict=True)
                }
                for row in written.table.rows
            ),
        )
