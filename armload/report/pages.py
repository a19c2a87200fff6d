"""Pages that open anywhere: a template over a result, and the folders that hold them."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

from markupsafe import Markup, escape
from rich.text import Text

from armload.core.errors import UsageError
from armload.core.files import write_whole
from armload.core.places import cache_folder
from armload.core.progress import Progress, Silent
from armload.core.values import Value, visible
from armload.report.drawing import inline_svg, legible, png, svg, untitled
from armload.report.figures.figure import Figure
from armload.report.layout import Table

PAGE_NAME = "report.html"


@dataclass(frozen=True, kw_only=True)
class Page:
    """A page: a template, and the result that it lays out.

    Attributes:
        template: below the package of reports.
        headline: the result in one sentence.
        version: of armload, which made it or what it shows.
        figures: in order.
        table: the results, for programs that read of the page.
        name: of its file.
        shown: all else that the template names.
    """

    template: str
    headline: str
    version: str
    figures: Sequence[Figure] = ()
    table: Table | None = None
    name: str = PAGE_NAME
    shown: Mapping[str, object]


Filter = tuple[str, str, int]
"""A state of rows, what it is called, and how many rows have it."""


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
    environment.filters["breakable"] = _breakable
    charts = {each.name: legible(untitled(each.specification)) for each in page.figures}
    own = files("armload.report").joinpath("page.js").read_text(encoding="utf-8")
    script = (libraries() if charts else "") + own
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    text = environment.get_template(page.template).render(
        page.shown,
        page=page,
        charts=charts,
        # Drawn here; text in it is escaped.
        stills={name: Markup(inline_svg(chart)) for name, chart in charts.items()},  # noqa: S704
        script=Markup(script),  # noqa: S704 - ours and the libraries', no text of a run
        script_digest=digest,
        has_pictures=has_pictures,
        zip=zip,
    )
    return text.lstrip()


_JOINS = re.compile(r"(?<=\w)\+(?=\w)")


def _breakable(value: object) -> object:
    """Let a browser break a long version, such as a kernel's, at its plus sign, as at a hyphen."""
    if isinstance(value, Markup) or not isinstance(value, str | Text):
        return value
    return Markup(_JOINS.sub(r"\g<0><wbr>", str(escape(_shown(value)))))  # noqa: S704 - escaped


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
    path = folder / page.name
    write_whole(path, render(page).encode())
    return path


class WrittenFigure(Figure):
    """A figure that was written."""

    png: Path
    svg: Path


class Report(Value):
    """A page that was written with its pictures, and what it says.

    Attributes:
        headline: the page's.
        page: the HTML file.
        figures: in the page's order.
        table: one row for each cell, its entries by the column's key, or else its heading.
    """

    headline: str
    page: Path
    figures: tuple[WrittenFigure, ...]
    table: tuple[dict[str, int | float | str], ...]


def report_lines(written: Report) -> Iterator[str]:
    """Say what a report shows, and where it and each figure are."""
    yield f"{written.headline}\n  {written.page}"
    for figure in written.figures:
        yield f"{figure.title}: {figure.sentence}\n  {figure.png}"


def write_report(page: Page, folder: Path, progress: Progress | None = None) -> Report:
    """Write a page and the pictures of its figures into a folder, which may exist.

    Raises:
        UsageError: it is a file.
    """
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file.", "Name a folder for the report.")
    pictures: list[WrittenFigure] = []
    total = len(page.figures) + 1
    with (progress or Silent()).step("Drawing", total=total, unit="figures") as step:
        for figure in page.figures:
            step.update(len(pictures), note=figure.name)
            files = {ending: folder / f"{figure.name}.{ending}" for ending in ("png", "svg")}
            picture = WrittenFigure(**dict(figure), **files)
            write_whole(picture.png, png(figure.specification))
            write_whole(picture.svg, svg(figure.specification).encode())
            pictures.append(picture)
        step.update(len(pictures), note=page.name)
        path = folder / page.name
        write_whole(path, render(page, has_pictures=True).encode())
    records = page.table.records() if page.table else ()
    return Report(headline=page.headline, page=path, figures=tuple(pictures), table=records)
