"""Evaluations, logits and results of the harness: as JSON, and for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from armload.analysis.accuracy import Accuracy
from armload.core.values import Value, counted, percentage
from armload.evaluation.harness.evaluating import HarnessResult
from armload.evaluation.logits.agreement import Agreement
from armload.evaluation.record import EvaluationFolder
from armload.evaluation.results import AccuracyPoint, Disagreement
from armload.report.layout import Column, Prose, Table, whole


class EvaluatedPoint(Value):
    """What a model gets right in one way, within one budget.

    Attributes:
        model, prompt, is_told, concludes, budget, accuracy, normalised: as in ``AccuracyPoint``.
        questions: answered ones.
        correct: how many of them right.
        failed: questions that could not be answered.
        ungraded: answers of which the grader made nothing; they count as wrong.
        out_of_context: answers that ended before the budget because the context was full; they
            count as they are.
        boxed_share: share of answers with a closed box.
        mean_tokens, mean_s: of an answer.
        doubts: why the times are not reliable.
    """

    model: str
    prompt: str
    is_told: bool
    concludes: bool
    budget: int | None
    questions: int
    correct: int
    failed: int
    ungraded: int = 0
    out_of_context: int = 0
    accuracy: Accuracy | None
    normalised: Accuracy | None
    boxed_share: float
    mean_tokens: float
    mean_s: float
    doubts: tuple[str, ...] = ()

    @classmethod
    def of(cls, point: AccuracyPoint) -> EvaluatedPoint:
        """Describe a point without its answers."""
        return cls(
            model=point.model,
            prompt=point.prompt,
            is_told=point.is_told,
            concludes=point.concludes,
            budget=point.budget,
            questions=len(point.attempts),
            correct=point.correct,
            failed=len(point.failed),
            ungraded=len(point.ungraded),
            out_of_context=len(point.out_of_context),
            accuracy=point.accuracy,
            normalised=point.normalised,
            boxed_share=point.boxed_share,
            mean_tokens=point.mean_tokens,
            mean_s=point.mean_s,
            doubts=point.doubts,
        )


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
    points: tuple[EvaluatedPoint, ...]
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
            points=tuple(map(EvaluatedPoint.of, points)),
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
            percentage(each.top1_share, digits=1),
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
        f"{found.kl_p99:.3g} nats; same top token at {100 * found.top1_share:.2f}% of positions."
    )
