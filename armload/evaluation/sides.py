"""The two evaluated models that a trade-off compares."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice

from armload.core.errors import ArmloadError, UsageError
from armload.core.ids import fingerprint_of
from armload.core.values import Value, counted
from armload.engines.measurement import KnownAccuracy, Measurement
from armload.evaluation.question import Question
from armload.evaluation.record import (
    AnsweringProgram,
    EvaluationFolder,
    Part,
    Template,
    UsedProjector,
)
from armload.evaluation.results import AccuracyPoint, points_of


class TradeoffSide(Value):
    """One model of an evaluation.

    Attributes:
        evaluation: its id.
        task, grader: by name.
        questions: that were asked.
        model, model_sha256: of the file.
        points: its own.
        template: for chats.
        projector: by which it saw the task's images; none without images.
        program: that answered; none for armload's scorer.
    """

    evaluation: str
    task: str
    grader: str
    questions: tuple[Question, ...]
    model: str
    model_sha256: str
    points: tuple[AccuracyPoint, ...]
    template: Template = "model"
    projector: UsedProjector | None = None
    program: AnsweringProgram | None = None


def find_sides(a: str, b: str) -> tuple[TradeoffSide, TradeoffSide]:
    """Return what two references mean.

    Args:
        a, b: an evaluation as for ``EvaluationFolder.find``, or ``EVALUATION:MODEL`` with part of
            the name of one of its models. An empty ``b`` stands for the second model of ``a``.
    """
    if b:
        sides = _side(a), _side(b)
    else:
        evaluated = EvaluationFolder.find(a)
        names = _models(evaluated)
        if len(names) != 2:
            raise UsageError(
                f"{evaluated.evaluation.id} has {counted(len(names), 'model')}, not two.",
                f"Name two: armload tradeoff {a}:{names[0]} EVALUATION:MODEL",
            )
        sides = _of_model(evaluated, names[0]), _of_model(evaluated, names[1])
    if sides[0].task != sides[1].task:
        raise UsageError(
            f"{sides[0].evaluation} evaluates {sides[0].task}, but {sides[1].evaluation} evaluates "
            f"{sides[1].task}.",
            "Compare evaluations of the same task.",
        )
    _require_same_questions(*sides)
    if sides[0].grader != sides[1].grader:
        raise UsageError(
            f"{sides[0].evaluation} is graded by {sides[0].grader}, {sides[1].evaluation} by "
            f"{sides[1].grader}.",
            f"Grade both alike: armload eval --regrade {sides[1].evaluation} --grader "
            f"{sides[0].grader}",
        )
    return sides


def with_accuracies(measured: Sequence[Measurement]) -> list[Measurement]:
    """Return measurements with what evaluations of the same programs and models found."""
    known = [*_known()]
    return [
        each.model_copy(
            update={"accuracies": tuple(found for part, found in known if _is_of(part, each))}
        )
        for each in measured
    ]


def _known() -> Iterator[tuple[Part, KnownAccuracy]]:
    """Yield each part of all evaluations whose answers are generated, the newest first."""
    for folder in reversed(EvaluationFolder.kind.folders()):
        with suppress(ArmloadError):
            evaluated = EvaluationFolder.read(folder)
            evaluation = evaluated.evaluation
            if evaluation.kind != "generate":
                continue
            asked = [question.model_dump_json() for question in evaluated.questions]
            for part, point in zip(*_largest_budgets(evaluated), strict=True):
                how = (evaluation.grader, part.prompt, str(part.is_told), str(part.concludes))
                yield (
                    part,
                    KnownAccuracy(
                        side=f"{evaluation.id}:{part.model}",
                        task=evaluation.task,
                        asked=fingerprint_of((*how, *asked)),
                        questions=point.questions,
                        correct=point.correct,
                        budget=part.max_tokens,
                    ),
                )


def _largest_budgets(
    evaluated: EvaluationFolder,
) -> tuple[Sequence[Part], Sequence[AccuracyPoint]]:
    """Return the parts with answers, those with the largest budgets first, and their points."""
    points, found = iter(points_of(evaluated)), []
    for part in evaluated.evaluation.parts:
        *_, largest = islice(points, len(part.budgets))
        if largest.attempts:
            found.append((part, largest))
    found.sort(key=lambda pair: pair[0].max_tokens, reverse=True)
    return [part for part, _ in found], [point for _, point in found]


def _is_of(part: Part, measured: Measurement) -> bool:
    program = part.program.name if part.program else ""
    is_same = program == (measured.method.engine.split(" ")[0] if measured.is_watched else "")
    sha256 = measured.work.model_sha256
    return is_same and bool(sha256) and part.model_sha256 == sha256


def _require_same_questions(a: TradeoffSide, b: TradeoffSide) -> None:
    # Of one number, data files may have different questions.
    asked = {question.id: question for question in a.questions}
    for question in b.questions:
        if question != asked.get(question.id, question):
            raise UsageError(
                f"{a.evaluation} and {b.evaluation} were asked different questions: number "
                f"{question.id} is not the same in both.",
                "Evaluate both with the same --task and --data.",
            )
    if len(a.questions) != len(b.questions):
        raise UsageError(
            f"{a.evaluation} has {counted(len(a.questions), 'question')}, {b.evaluation} has "
            f"{len(b.questions)}.",
            "Evaluate both with the same --limit.",
        )


def _side(reference: str) -> TradeoffSide:
    name, _, model = reference.partition(":")
    evaluated = EvaluationFolder.find(name)
    names = _models(evaluated)
    exactly = [each for each in names if model in {each, each.removesuffix(".gguf")}]
    found = exactly or [each for each in names if model in each]
    if len(found) != 1:
        raise UsageError(
            f"{reference}: {evaluated.evaluation.id} has the models {', '.join(names)}.",
            f"Name one of them: {name}:{names[0]}",
        )
    return _of_model(evaluated, found[0])


def _of_model(evaluated: EvaluationFolder, model: str) -> TradeoffSide:
    evaluation = evaluated.evaluation
    if evaluation.kind != "generate":
        raise UsageError(
            f"{evaluation.id} is multiple choice: its answers have no length to trade for time.",
            "Use evaluations of a task whose answers are generated.",
        )
    part = next(part for part in evaluation.parts if part.model == model)
    return TradeoffSide(
        evaluation=evaluation.id,
        task=evaluation.task,
        grader=evaluation.grader,
        questions=tuple(evaluated.questions),
        model=model,
        model_sha256=part.model_sha256,
        points=tuple(point for point in points_of(evaluated) if point.model == model),
        template=part.template,
        projector=part.used_projector,
        program=part.program,
    )


def _models(evaluated: EvaluationFolder) -> list[str]:
    return list(dict.fromkeys(part.model for part in evaluated.evaluation.parts))
