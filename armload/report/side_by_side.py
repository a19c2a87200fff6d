"""What the comparisons of runs, loads and tunings have in common: words, table and layout."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from armload.core.values import percentage
from armload.report.layout import Column, Details, Prose, Rows

TIMES_FROM = 2.0
"""From this ratio on it is shown as a factor, below as a percentage."""

NOT_COMPARABLE = "not comparable"
STYLES = {"faster": "green", "slower": "red", "no difference": "bold", NOT_COMPARABLE: "yellow"}


def change(ratio: float) -> str:
    """Say how much longer or shorter B takes: ``3.1% longer``, ``2.73 times as long``."""
    if ratio >= TIMES_FROM or ratio <= 1 / TIMES_FROM:
        return f"{ratio:.3g} times as long"
    return f"{percentage(abs(ratio - 1), digits=1)} {'longer' if ratio >= 1 else 'less'}"


def span(low: float, high: float) -> str:
    """Say between which two ratios B takes, in one notation for both."""
    if high >= TIMES_FROM or low <= 1 / TIMES_FROM:
        return f"{low:.3g} to {high:.3g} times as long"
    return f"{change(low)} to {change(high)}"


def figures_table(heading: str = "") -> Rows:
    """Return an empty table of what A and B take, of their ratio, and of what it says."""
    return Rows(
        Column(heading=heading),
        Column(heading="A"),
        Column(heading="B"),
        Column(heading="B takes"),
        Column(heading="95% confidence", below="95% confidence: "),
        Column(heading="finding"),
    )


def finding_cell(finding: str, overall: str) -> Text:
    """Return what a row of that table says; nothing where the sides are not comparable."""
    said = "-" if overall == NOT_COMPARABLE else finding
    return Text(said, style=STYLES.get(said, ""))


def side_by_side(
    a: str,
    b: str,
    finding: str,
    sentence: str | Text,
    tables: Iterable[RenderableType],
    *,
    notes: Sequence[str],
    doubts: Sequence[str],
) -> Group:
    """Lay out a comparison.

    Args:
        a, b: what the sides are.
        finding: one of ``STYLES``.
        sentence: which says it.
        tables: the figures.
        notes: what a reader should know.
        doubts: what speaks against the figures.
    """
    details = Details([("A", a), ("B", b)])
    remarks = [Prose(f"note: {note}", style="dim") for note in notes]
    remarks += [Prose(f"doubt: {doubt}", style="yellow") for doubt in doubts]
    said = Prose(Text(sentence, style=STYLES[finding]) if isinstance(sentence, str) else sentence)
    figures = [Text(""), *(part for table in tables for part in (table, Text("")))]
    if len(figures) == 1:
        figures = []
    if finding == NOT_COMPARABLE:  # before figures that would be read as a result
        return Group(details, said, *remarks, *figures)
    return Group(details, *remarks, *figures, said)
