"""Pages that open anywhere, composed of sections, and the folders that hold them."""

from __future__ import annotations

import base64
import contextlib
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

from markupsafe import Markup
from rich.text import Text

from armload.core.errors import UsageError
from armload.core.files import write_whole
from armload.core.places import cache_folder
from armload.core.progress import Progress, Silent
from armload.core.values import Value, visible
from armload.core.workspace import reports_folder
from armload.report.drawing import inline_svg, legible, png, svg, untitled
from armload.report.figures.figure import Figure
from armload.report.layout import Details, Table

PAGE_NAME = "report.html"


@dataclass(frozen=True, kw_only=True)
class Paragraph:
    """A sentence or several; ``style`` is a class of the style sheet."""

    text: str
    style: str = ""


@dataclass(frozen=True, kw_only=True)
class Notice:
    """What to see first, in a box; ``about`` colours it."""

    lines: tuple[str, ...]
    advice: str = ""
    about: str = ""


@dataclass(frozen=True, kw_only=True)
class Items:
    """A list."""

    items: tuple[str, ...]
    style: str = "doubts"


Filter = tuple[str, str, int]
"""A state of rows, what it is called, and how many rows have it."""


@dataclass(frozen=True, kw_only=True)
class SortableTable:
    """A table that a reader sorts, and filters by the rows' state.

    Attributes:
        name: of the table in the page; needed for filters.
    """

    table: Table
    name: str = ""
    filters: tuple[Filter, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Folded:
    """What a reader unfolds."""

    summary: str
    blocks: tuple[Block, ...]


Block = Paragraph | Notice | Items | Details | Table | SortableTable | Figure | Folded | Markup


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of a page; ``style`` is a class of the style sheet."""

    title: str
    blocks: tuple[Block, ...]
    style: str = ""


@dataclass(frozen=True, kw_only=True)
class Page:
    """A page.

    Attributes:
        headline: the result in one sentence.
        header: what was measured.
        lead: what to see before the sections.
        version: of armload, which made it or what it shows.
    """

    headline: str
    header: tuple[Block, ...]
    lead: tuple[Block, ...] = ()
    sections: tuple[Section, ...]
    version: str

    @property
    def figures(self) -> list[Figure]:
        """All figures, in order."""
        return [
            block
            for section in self.sections
            for block in section.blocks
            if isinstance(block, Figure)
        ]


def figure_section(figure: Figure) -> Section:
    """Return the section of a figure, under its own title."""
    said = " ".join(filter(None, (figure.sentence, figure.note)))
    blocks: tuple[Block, ...] = (*paragraphs(said, style="result"), figure)
    return Section(title=figure.title, blocks=blocks, style="figure")


def results_section(
    title: str, sentence: str, table: Table, *, name: str = "", filters: Sequence[Filter] = ()
) -> Section:
    """Return the section of a table that can be sorted, as wide as the window."""
    hint = html('<span class="hint">Click a heading to sort by it.</span>')
    said = html('<p class="result">{} {}</p>', sentence, hint)
    sortable = SortableTable(table=table, name=name, filters=tuple(filters))
    return Section(title=title, blocks=(said, sortable), style="wide")


def paragraphs(*lines: str, style: str = "") -> Iterator[Paragraph]:
    """Return a paragraph for each line that says something."""
    return (Paragraph(text=line, style=style) for line in lines if line)


def verdict(line: str, *, is_valid: bool) -> Paragraph:
    """Return the line that says how far the figures may be believed."""
    return Paragraph(text=line, style=f"verdict {'valid' if is_valid else 'doubtful'}")


def html(pattern: str, *values: object) -> Markup:
    """Return HTML of ours around values, whose text stays text."""
    return Markup(pattern).format(*map(_shown, values))  # noqa: S704 - values are escaped


def render(page: Page, *, has_pictures: bool = False) -> str:
    """Return a page as HTML that needs no other file.

    Every text that came from a board or a file is escaped and cannot steer the text around it, and
    the page's policy lets no script run but the page's own, and nothing be fetched.

    Args:
        has_pictures: its figures lie beside it.
    """
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("armload.report", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    charts = {each.name: legible(untitled(each.specification)) for each in page.figures}
    own = files("armload.report").joinpath("page.js").read_text(encoding="utf-8")
    script = (libraries() if charts else "") + own
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    text = environment.get_template("page.html.j2").render(
        page=page,
        charts=charts,
        # Drawn here; text in it is escaped.
        stills={name: Markup(inline_svg(chart)) for name, chart in charts.items()},  # noqa: S704
        script=Markup(script),  # noqa: S704 - ours and the libraries', no text of a run
        script_digest=digest,
        has_pictures=has_pictures,
        kind_of=lambda block: type(block).__name__,
        zip=zip,
    )
    return text.lstrip()


def _shown(value: object) -> object:
    """Return a value whose text, unless it is markup, does not steer the text around it."""
    if isinstance(value, Markup) or not isinstance(value, str | Text):
        return value
    return visible(str(value))


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


def write_page(page: Page, folder: Path) -> Path:
    """Write a page into the folder of what it shows, and return its path."""
    path = folder / PAGE_NAME
    write_whole(path, render(page).encode())
    return path


class Picture(Figure):
    """A figure that was written."""

    png: Path
    svg: Path


class Report(Value):
    """A page that was written with its pictures, and what it says.

    Attributes:
        headline: the page's.
        page: the HTML file.
        figures: in the page's order.
        table: one row for each cell, its entries by the column's heading.
    """

    headline: str
    page: Path
    figures: tuple[Picture, ...]
    table: tuple[dict[str, int | float | str], ...]


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


def write_report(page: Page, folder: Path, table: Table, progress: Progress | None) -> Report:
    """Write a page and the pictures of its figures into a folder.

    Args:
        folder: as ``check_report_folder`` accepts it.
        table: the results, for programs.
    """
    pictures: list[Picture] = []
    total = len(page.figures) + 1
    with (progress or Silent()).step("Drawing", total=total, unit="figures") as step:
        for figure in page.figures:
            step.update(len(pictures), note=figure.name)
            pictures.append(_pictured(figure, folder))
        step.update(len(pictures), note=PAGE_NAME)
        path = folder / PAGE_NAME
        write_whole(path, render(page, has_pictures=True).encode())
    return Report(headline=page.headline, page=path, figures=tuple(pictures), table=table.records())


def _pictured(figure: Figure, folder: Path) -> Picture:
    picture = Picture(
        **dict(figure), png=folder / f"{figure.name}.png", svg=folder / f"{figure.name}.svg"
    )
    write_whole(picture.png, png(figure.specification))
    write_whole(picture.svg, svg(figure.specification).encode())
    return picture
