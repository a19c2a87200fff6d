"""Comparisons in words, as a table, and side by side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter

from rich.console import Group, RenderableType
from rich.text import Text

from armload.analysis.compare import Comparison, Measured, Side
from armload.analysis.comparison_findings import Remark
from armload.analysis.precision import MOST_MORE_RUNS, less_varied
from armload.analysis.ratios import times, times_interval
from armload.analysis.statistics import Ratio
from armload.analysis.wording.comparisons import not_comparable
from armload.report import formatting as words
from armload.report.layout import Column, Details, Prose, Table

_NAMED_AT_MOST = 3
NOT_COMPARABLE, INCONCLUSIVE = "not comparable", "inconclusive"
STYLES = {
    "faster": "green",
    "slower": "red",
    "not significant": "bold",
    INCONCLUSIVE: "yellow",
    NOT_COMPARABLE: "yellow",
}


def ratio_cells(ratio: Ratio) -> tuple[str, str]:
    """Write how many times A's figure B's is, and between which bounds that lies."""
    return times(ratio.ratio), times_interval(ratio.low, ratio.high)


def figures_table(heading: str = "") -> Table:
    """Return an empty table of what A and B take, of their ratio, and of what it says."""
    return Table(
        Column(heading=heading),
        Column(heading="A"),
        Column(heading="B"),
        Column(heading="B / A"),
        Column(heading="95% CI", below="95% CI: "),
        Column(heading="finding"),
    )


def finding_cell(finding: str, overall: str) -> Text:
    """Return what a row of that table says, unless the whole comparison says nothing."""
    said = {NOT_COMPARABLE: "-", INCONCLUSIVE: INCONCLUSIVE}.get(overall, finding)
    return Text(said, style=STYLES.get(said, ""))


def side_by_side(
    a: str,
    b: str,
    finding: str,
    sentence: str | Text,
    tables: Iterable[RenderableType],
    *,
    notes: Iterable[Remark],
    doubts: Iterable[str],
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
    remarks = [Prose(f"note: {note.sentence}", style="dim") for note in notes]
    remarks += [Prose(f"warning: {doubt}", style="yellow") for doubt in each_once(doubts)]
    said = Prose(Text(sentence, style=STYLES[finding]) if isinstance(sentence, str) else sentence)
    figures = [Text(""), *(part for table in tables for part in (table, Text("")))]
    if len(figures) == 1:
        figures = []
    return Group(details, said, *remarks, *figures)


def each_once(doubts: Iterable[str]) -> Iterator[str]:
    """Yield each doubt once, with the names of all whose doubt it is, be it with other figures."""
    for group in words.alike((each.partition(": ") for each in doubts), itemgetter(2)):
        said = group[0][2]
        names = [name for name, _, its in group if its == said]
        similar = [name for name, _, its in group if its != said]
        yield f"{_some_of(names)}: {said}" if said else names[0]
        if similar:
            yield f"{_some_of(similar)}: the same problem, with different figures."


def _some_of(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_NAMED_AT_MOST])
    more = len(names) - _NAMED_AT_MOST
    return f"{shown} and {more} more" if more > 0 else shown


def sentence(compared: Comparison) -> str:
    """Say the finding plainly, with its figures, and what the sides differ in."""
    if not compared.measured:
        return not_comparable(compared.differences)
    differ = "; ".join(each.sentence for each in compared.subjects)
    return f"{_finding(compared)} The sides differ in {differ}." if differ else _finding(compared)


def _finding(compared: Comparison) -> str:
    first = compared.measured[0]
    what = "to its first token" if first.measure == "first token" else f"per {_token(first)}"
    figures = f"{words.seconds(first.b_s)} {what} ({_median(first)}) against "
    figures += words.seconds(first.a_s)
    ratio, interval = ratio_cells(first.ratio)
    figures = f"{figures}, {ratio} A's time"
    if compared.finding == "not comparable":
        return f"{not_comparable(compared.differences)} For reference: B takes {figures}."
    said = f"{figures} (95% CI {interval})."
    if compared.finding == "inconclusive":
        return f"Inconclusive: {_invalid(compared)}. B takes {said}"
    if compared.finding == "not significant":
        return f"No significant difference: B takes {said}"
    return f"B is {compared.finding}: {said}"


def _invalid(compared: Comparison) -> str:
    """Say whose runs are not valid."""
    sides = (("A", compared.a), ("B", compared.b))
    doubted = {label: side for label, side in sides if not side.is_judged}
    labels = " and ".join(doubted)
    if all(len(side.names) == 1 for side in doubted.values()):
        return (
            f"the run of {labels} is not valid"
            if len(doubted) == 1
            else f"the runs of {labels} are not valid"
        )
    if all(_none_is_valid(side) for side in doubted.values()):
        return f"no run of {' or '.join(doubted)} is valid"
    return f"not all runs of {labels} are valid"


def _none_is_valid(side: Side) -> bool:
    return all(any(doubt.startswith(f"{name}: ") for doubt in side.doubts) for name in side.names)


def advice(compared: Comparison) -> str:
    """Say how many repeats it takes to see a small difference; nothing when one was found."""
    if compared.finding != "not significant":
        return ""
    needed = compared.runs_to_see_3_percent
    if needed is None:
        return "Repeat both: with 4 or more runs per side, the variation between runs is measured."
    runs = min(len(compared.a.names), len(compared.b.names))
    if needed <= runs:
        return ""
    if needed > MOST_MORE_RUNS:
        helps = less_varied(is_emulated=compared.a.work.is_emulated or compared.b.work.is_emulated)
        return (
            "At this spread, no practical number of runs would detect a difference of 3%: "
            f"{helps}, and repeat them."
        )
    return f"At this spread, {needed} runs per side are needed to detect a difference of 3%."


def comparison_view(compared: Comparison) -> Group:
    """Lay out one comparison: the sides, their figures, and the finding."""
    said = Text(sentence(compared), style=STYLES[compared.finding])
    if advice(compared):
        said = Text.assemble(said, " ", (advice(compared), "bold"))
    return side_by_side(
        *(_side(compared.a), _side(compared.b), compared.finding, said),
        [_figures(compared)] if compared.measured else [],
        notes=compared.notes,
        doubts=(*compared.a.doubts, *compared.b.doubts),
    )


def boards_table(compared: Sequence[Comparison]) -> Table | None:
    """Lay out comparisons on several boards side by side; none where there is one board."""
    boards = {side.work.board for each in compared for side in (each.a, each.b)}
    if len(compared) < 2 or len(boards) < 2:
        return None
    table = figures_table("A / B, medians")
    for each in compared:
        if each.measured:
            first = each.measured[0]
            table.add(
                f"{_short(each.a)} / {_short(each.b)}: {_label(first)}",
                words.seconds(first.a_s),
                words.seconds(first.b_s),
                *ratio_cells(first.ratio),
                finding_cell(first.finding, each.finding),
            )
    return table


def _short(side: Side) -> str:
    threads = words.counted(side.method.threads, "thread") if side.method.threads else None
    return ", ".join(filter(None, (side.work.board, side.work.model, threads)))


def _side(side: Side) -> str:
    work = side.work
    count = f" and {len(side.names) - 1} more" if len(side.names) > 1 else ""
    known = [
        word
        for word in (
            work.model,
            work.board,
            side.method.engine,
            words.counted(side.method.threads, "thread") if side.method.threads else None,
            f"predicted {words.seconds(side.predicted_token_s)} per token"
            if side.predicted_token_s
            else None,
        )
        if word
    ]
    return f"{side.names[0]}{count}: {', '.join(known)}"


def _figures(compared: Comparison) -> Table:
    table = figures_table("medians")
    for each in compared.measured:
        table.add(
            _label(each),
            words.seconds(each.a_s),
            words.seconds(each.b_s),
            *ratio_cells(each.ratio),
            finding_cell(each.finding, compared.finding),
        )
    return table


def _label(each: Measured) -> str:
    if each.measure == "first token":
        return each.measure
    some = f" (first {each.first_tokens})" if each.first_tokens else ""
    return f"{each.measure}, per token{some}"


def _median(each: Measured) -> str:
    if not each.first_tokens:
        return "median"
    return f"median of the first {words.counted(each.first_tokens, 'decoded token')} of every run"


def _token(each: Measured) -> str:
    return "prompt token" if each.measure == "prefill" else "token"
