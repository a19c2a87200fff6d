"""Evaluations, logits and results of the harness: as JSON, and for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from armload.core.columns import Column
from armload.core.values import Value, counted
from armload.evaluation.disagreements import Disagreement
from armload.evaluation.harness.evaluating import HarnessResult
from armload.evaluation.logits.agreement import Agreement
from armload.evaluation.record import EvaluationFolder
from armload.evaluation.results import AccuracyPoint
from armload.report.layout import Prose, Table, whole


class EvaluationDocument(Value):
    """An evaluation, as far as it is answered.

    Attributes:
        evaluation: its id.
        task, grader, boards: by name.
        points: one for each model, prompt and budget.
        disagreements: answers that two graders judge differently, where two were named.
    """

    evaluation: str
    task: str
    grader: str
    boards: tuple[str, ...]
    points: tuple[AccuracyPoint, ...]
    disagreements: tuple[Disagreement, ...] = ()

    @classmethod
    def of(
        cls,
        evaluated: EvaluationFolder,
        points: Sequence[AccuracyPoint],
        grader: str,
        disagreements: tuple[Disagreement, ...] = (),
    ) -> EvaluationDocument:
        """Describe an evaluation, graded."""
        return cls(
            evaluation=evaluated.evaluation.id,
            task=evaluated.evaluation.task,
            grader=grader,
            boards=evaluated.evaluation.boards,
            points=tuple(points),
            disagreements=disagreements,
        )


def harness_view(found: HarnessResult) -> Group:
    """Lay out the metrics of each task, and where all samples are."""
    table = Table(
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


MOST_SHOWN = 12


class LogitsDocument(Value):
    """What was computed of a model.

    Attributes:
        run: its id.
        prompts: how many have logits.
        failed: why others have none, by their numbers.
        agreement: with the reference; none without one.
    """

    run: str
    prompts: int
    failed: Mapping[str, str]
    agreement: Agreement | None


def agreement_view(found: Agreement) -> Group:
    """Lay out the sums, and the prompts that differ most."""
    worst = sorted(found.prompts, key=lambda each: each.max_difference, reverse=True)[:MOST_SHOWN]
    table = Table(
        Column(heading="prompt", is_number=True),
        Column(heading="positions", is_number=True),
        Column(heading="close"),
        Column(heading="largest\ndifference", is_number=True),
        Column(heading="same\ntop token", is_number=True),
    )
    for each in worst:
        table.add(
            each.prompt,
            str(each.positions),
            Text("yes", style="green") if each.is_close else Text("no", style="red"),
            f"{each.max_difference:.3g}",
            f"{each.top1_share:.1%}",
        )
    lines: list[RenderableType] = [table]
    if len(worst) < len(found.prompts):
        lines.append(Prose(f"Shown: the {len(worst)} that differ most.", "dim"))
    lines += [Text(""), Prose(sentence(found), "bold")]
    if found.missing:
        lines.append(Prose(f"Only one side has prompt {', '.join(found.missing)}.", "yellow"))
    return Group(*lines)


def sentence(found: Agreement) -> str:
    """Say how far the logits agree."""
    return (
        f"{found.close} of {counted(len(found.prompts), 'prompt')} close to {found.reference} "
        f"(atol {found.atol:g}, rtol {found.rtol:g}); largest difference "
        f"{found.max_difference:.3g}; KL divergence mean {found.kl_mean:.3g}, 99th percentile "
        f"{found.kl_p99:.3g} nats; same top token at {found.top1_share:.2%} of positions."
    )
