"""An evaluation as JSON; the answers themselves stay in its folder."""

from __future__ import annotations

from collections.abc import Sequence

from armload.analysis.accuracy import Accuracy
from armload.core.values import Value
from armload.evaluation.disagreements import Disagreement
from armload.evaluation.record import Evaluated
from armload.evaluation.results import Point


class EvaluatedPoint(Value):
    """What a model gets right in one way, within one budget.

    Attributes:
        model, prompt, is_told, concludes, budget, accuracy, normalised: as in ``Point``.
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
    def of(cls, point: Point) -> EvaluatedPoint:
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
        evaluated: Evaluated,
        points: Sequence[Point],
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
