"""A comparison for a terminal, and comparisons on several boards side by side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter

from pydantic import BaseModel
from rich.console import Group, RenderableType
from rich.text import Text

from armload.analysis.comparison import ComparedFigure, Comparison, Subject, not_comparable
from armload.analysis.statistics import surely_above
from armload.core.columns import Column
from armload.core.errors import ArmloadError, InconclusiveError, SlowerError
from armload.core.values import ValueList
from armload.report import formatting as words
from armload.report.layout import Details, Prose, Table
from armload.report.result import Part, Result

_NAMED_AT_MOST = 3
STYLES = {
    "faster": "green",
    "slower": "red",
    "not significant": "bold",
    "inconclusive": "yellow",
    "not comparable": "yellow",
}


@dataclass(frozen=True, kw_only=True)
class SlowdownLimit:
    """How much slower B may be.

    Attributes:
        share: of the time that A takes.
        as_typed: the same in a person's words.
    """

    share: float
    as_typed: str

    def check(self, compared: Sequence[Comparison]) -> ArmloadError | None:
        """Return why B is too slow, or that nobody can tell: a gate errs in neither direction."""
        for each in compared:
            if not each.is_gated:
                why = not_comparable(each.subjects) if each.subjects else each.sentence
                return InconclusiveError(
                    f"--fail-if-slower {self.as_typed}: {why}",
                    "A gate needs runs of the same model and plan on the same board.",
                )
        judged = [each for each in compared if each.finding != "inconclusive"]
        surely_slower = surely_above(1 + self.share, [each.figures[0].low_at for each in judged])
        slower = [judged[number] for number in surely_slower]
        if slower:
            said = " ".join(each.sentence for each in slower)
            return SlowerError(
                f"Slower than {self.as_typed} allows: {said}",
                "Look at the runs with: armload show ID",
            )
        if len(judged) < len(compared):
            return InconclusiveError(
                f"--fail-if-slower {self.as_typed}: inconclusive. The report says why.",
                "Repeat the runs that it names, and compare again.",
            )
        return None


@dataclass(frozen=True, kw_only=True)
class ComparisonResult(Result):
    """Comparisons of two sides: one for each board or point that they have in common."""

    compared: Sequence[Comparison]
    limit: SlowdownLimit | None

    @property
    def error(self) -> ArmloadError | None:
        return self.limit.check(self.compared) if self.limit else None

    def document(self) -> BaseModel:
        return ValueList[Comparison](tuple(self.compared))

    def view(self) -> Iterator[Part]:
        for number, each in enumerate(self.compared):
            if number:
                yield ""
            yield comparison_view(each)
        if (table := boards_table(self.compared)) is not None:
            yield ""
            yield table


def comparison_view(compared: Comparison) -> Group:
    """Lay out one comparison: the sides, the finding, what to know of it, the figures."""
    said = Text(compared.sentence, style=STYLES[compared.finding])
    if compared.advice:
        said = Text.assemble(said, " ", (compared.advice, "bold"))
    parts: list[RenderableType] = [
        Details([("A", compared.a.title), ("B", compared.b.title)]),
        Prose(said),
        *(Prose(f"note: {note}", style="dim") for note in compared.notes),
        *(
            Prose(f"warning: {doubt}", style="yellow")
            for doubt in each_once(_named(compared.doubts), most_named=_NAMED_AT_MOST)
        ),
    ]
    if compared.figures:
        table = _table(compared.basis)
        for figure in compared.figures:
            _add(table, figure.heading, figure, compared)
        parts += [Text(""), table, Text("")]
    return Group(*parts)


def boards_table(compared: Sequence[Comparison]) -> Table | None:
    """Lay out comparisons on several boards side by side; none where there is one board."""
    boards = {side.board for each in compared for side in (each.a, each.b)}
    if len(compared) < 2 or len(boards) < 2 or compared[0].kind != "runs":
        return None
    table = _table("A / B, medians")
    for each in compared:
        if each.figures:
            first = each.figures[0]
            _add(table, f"{_short(each.a)} / {_short(each.b)}: {first.heading}", first, each)
    return table


def _table(heading: str) -> Table:
    return Table(
        Column(heading=heading),
        Column(heading="A"),
        Column(heading="B"),
        Column(heading="B / A"),
        Column(heading="95% CI", below="95% CI: "),
        Column(heading="finding"),
    )


def _add(table: Table, heading: str, figure: ComparedFigure, compared: Comparison) -> None:
    overall = compared.finding
    said = overall if overall == "inconclusive" else figure.finding
    finding = Text(figure.short_finding(said), style=STYLES[said])
    table.add(
        heading,
        figure.words(figure.a),
        figure.words(figure.b),
        *figure.cells,
        Text("-") if overall == "not comparable" else finding,
    )


def _short(side: Subject) -> str:
    threads = side.settings.get("threads")
    used = words.counted(threads, "thread") if isinstance(threads, int) else None
    return ", ".join(filter(None, (side.board, side.model, used)))


def _named(doubts: Iterable[str]) -> Iterator[tuple[str, str]]:
    for doubt in doubts:
        name, _, said = doubt.partition(": ")
        yield name, said


def each_once(doubts: Iterable[tuple[str, str]], *, most_named: int | None = None) -> Iterator[str]:
    """Yield each doubt once, with the names of all whose doubt it is, be it with other figures.

    Args:
        doubts: each after the name of what it is about; empty where the name says all.
        most_named: how many names are told; none for all.
    """
    for group in words.alike(doubts, itemgetter(1)):
        said = group[0][1]
        names = list(dict.fromkeys(name for name, its in group if its == said))
        similar = list(dict.fromkeys(name for name, its in group if its != said))
        yield f"{_some_of(names, most_named)}: {said}" if said else names[0]
        if similar:
            yield f"{_some_of(similar, most_named)}: the same problem, with different figures."


def _some_of(names: Sequence[str], most: int | None) -> str:
    between = "; " if any("," in each for each in names) else ", "
    shown = between.join(names[:most])
    more = 0 if most is None else len(names) - most
    return f"{shown} and {more} more" if more > 0 else shown
