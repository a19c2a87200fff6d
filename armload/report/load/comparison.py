"""Two loads side by side, in words and as a table."""

from __future__ import annotations

from rich.console import Group

from armload.analysis.load.comparison import REPEATS, LoadComparison
from armload.analysis.wording.comparisons import not_comparable
from armload.core.values import counted
from armload.report import formatting as words
from armload.report.comparison import figures_table, finding_cell, ratio_cells, side_by_side
from armload.report.layout import Table


def sentence(compared: LoadComparison) -> str:
    """Say the finding plainly, with its figures."""
    where = f"{compared.label}: " if compared.label else ""
    if not compared.measured:
        return f"{where}{not_comparable(compared.differences)}"
    first = compared.measured[0]
    figures = f"{words.seconds(first.b_s)} {first.measure} against {words.seconds(first.a_s)}"
    ratio, interval = ratio_cells(first.ratio)
    longer = f"{ratio} A's time"
    if compared.finding == "not comparable":
        return (
            f"{where}{not_comparable(compared.differences)} For reference: B takes {figures}, "
            f"{longer}."
        )
    of = f" over {counted(compared.repeats, 'repeat')}" if compared.repeats > 1 else ""
    if compared.finding == "inconclusive" and compared.doubts:
        return (
            f"{where}Inconclusive: not all figures are valid. B takes {figures}{of}, {longer} "
            f"(95% CI {interval})."
        )
    if compared.finding == "inconclusive":
        return (
            f"{where}Inconclusive: B takes {figures}{of}, but requests that queue together are "
            f"correlated: each load is worth about {compared.independent:.0f} independent "
            f"observations. Run both loads with --repeats {REPEATS}."
        )
    if compared.finding == "not significant":
        return (
            f"{where}No significant difference: B takes {figures}{of}, {longer} (95% CI "
            f"{interval})."
        )
    return (
        f"{where}B is {compared.finding}: {figures}, {longer} (95% CI {interval}{of and ','}{of})."
    )


def load_comparison_view(compared: LoadComparison) -> Group:
    """Lay out one comparison: the loads, their latencies, and the finding."""
    return side_by_side(
        *(compared.a, compared.b, compared.finding, sentence(compared)),
        [_figures(compared)] if compared.measured else [],
        notes=compared.notes,
        doubts=[each.sentence for each in compared.doubts],
    )


def _figures(compared: LoadComparison) -> Table:
    table = figures_table(counted(compared.requests, "request"))
    for each in compared.measured:
        table.add(
            each.measure,
            words.seconds(each.a_s),
            words.seconds(each.b_s),
            *ratio_cells(each.ratio),
            finding_cell(each.finding, compared.finding),
        )
    return table
