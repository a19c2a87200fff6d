"""A report in a folder, its page and its figures as pictures; and what was written, as JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from armload.core.errors import UsageError
from armload.core.files import write_whole
from armload.core.progress import Progress, Silent
from armload.core.values import Value
from armload.core.workspace import reports_folder
from armload.report.cell_table import CellTable
from armload.report.figures.figure import Figure
from armload.report.pictures import Picture, pictured

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
