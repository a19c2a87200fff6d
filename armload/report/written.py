"""A written report as JSON."""

from __future__ import annotations

from pathlib import Path

from armload.core.values import Value
from armload.report.multi_run import Report


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
