"""What lm-evaluation-harness says of a model on a board, for a terminal."""

from __future__ import annotations

from rich.console import Group
from rich.text import Text

from armload.evaluation.harness.evaluating import HarnessResult
from armload.report.layout import Column, Rows, whole


def harness_view(found: HarnessResult) -> Group:
    """Lay out the metrics of each task, and where all samples are."""
    table = Rows(
        Column(heading="task"),
        Column(heading="metric"),
        Column(heading="value", is_number=True),
        Column(heading="standard\nerror", is_number=True),
        Column(heading="samples", is_number=True),
    )
    for task in found.tasks:
        for metric, value in task.metrics.items():
            error = task.stderr.get(metric)
            table.add(
                task.name,
                metric,
                f"{value:.4f}",
                "" if error is None else f"{error:.4f}",
                str(task.samples),
            )
    return Group(table, Text(""), whole(f"samples  {found.results}"))
