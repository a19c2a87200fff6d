"""Two searches side by side, in words and as a table."""

from __future__ import annotations

from rich.console import Group
from rich.text import Text

from armload.analysis.wording.comparisons import not_comparable
from armload.report.comparison import figures_table, finding_cell, ratio_cells, side_by_side
from armload.report.layout import Column, Table
from armload.tuning.comparison import MeasuredSetting, TunedSide, TuningComparison
from armload.tuning.outcome_words import cost_words, gain_words
from armload.tuning.space import Choice


def sentence(compared: TuningComparison) -> str:
    """Say the finding plainly, with its figures."""
    first = compared.measured[0]
    figures = f"{_cost(compared.b, first.b_cost)} against {_cost(compared.a, first.a_cost)}"
    if compared.finding == "not comparable":
        return not_comparable(compared.differences)
    what = "Different configurations won." if compared.choices else "The same configuration won."
    ratio, interval = ratio_cells(first.ratio)
    changed = f"{ratio} A's {'energy' if compared.a.objective == 'energy' else 'time'}"
    if compared.finding == "inconclusive":
        return (
            f"Inconclusive: not all runs are valid. {what} B's winner has {figures}, {changed} "
            f"(95% CI {interval})."
        )
    if compared.finding == "not significant":
        return (
            f"{what} No significant difference: B's winner has {figures}, {changed} "
            f"(95% CI {interval})."
        )
    return f"{what} B's winner {_verdict(compared)}: {figures}, {changed} (95% CI {interval})."


def _verdict(compared: TuningComparison) -> str:
    if compared.a.objective != "energy":
        return f"is {compared.finding}"
    return f"takes {'less' if compared.finding == 'faster' else 'more'} energy"


def tuning_comparison_view(compared: TuningComparison) -> Group:
    """Lay out the searches, what won in each, what it costs, and the finding."""
    return side_by_side(
        *(_side(compared.a), _side(compared.b), compared.finding, sentence(compared)),
        [*([_choices(compared)] if compared.choices else []), _figures(compared)],
        notes=compared.notes,
        doubts=[each.sentence for each in compared.doubts],
    )


def _side(side: TunedSide) -> str:
    speed = side.speed
    gain = f"; {gain_words(side.objective, speed)}" if speed else ""
    return (
        f"{side.id}: {side.model} on {side.board}, for {side.objective}. "
        f"Winner: {side.winner_words}{gain}"
    )


def _choices(compared: TuningComparison) -> Table:
    table = Table(Column(heading="winner's"), Column(heading="A"), Column(heading="B"))
    for each in compared.choices:
        table.add(each.option.replace("_", "-"), _choice(each.a), _choice(each.b))
    return table


def _choice(choice: Choice) -> str:
    return "default" if choice is None else str(choice)


def _figures(compared: TuningComparison) -> Table:
    table = figures_table()
    for each in compared.measured:
        table.add(
            each.setting,
            _cost(compared.a, each.a_cost, each.a_runs),
            _cost(compared.b, each.b_cost, each.b_runs),
            *_ratio(compared, each),
            _finding(compared, each),
        )
    return table


def _cost(side: TunedSide, cost: float, runs: int = 0) -> str:
    counted = f" ({runs} {'run' if runs == 1 else 'runs'})" if runs else ""
    return cost_words(side.objective, cost) + counted


def _ratio(compared: TuningComparison, measured: MeasuredSetting) -> tuple[str, str]:
    if compared.a.objective != compared.b.objective:  # a ratio of different quantities says nothing
        return "-", "-"
    return ratio_cells(measured.ratio)


def _finding(compared: TuningComparison, measured: MeasuredSetting) -> Text:
    cell = finding_cell(measured.finding, compared.finding)
    if compared.a.objective != "energy":
        return cell
    said = {"faster": "less energy", "slower": "more energy"}.get(cell.plain, cell.plain)
    return Text(said, style=cell.style)
