"""What ``tradeoff`` compares: the lines of two evaluations, or of two models in one."""

from __future__ import annotations

from collections.abc import Sequence

from armload.analysis.latency import Latency, latency_of
from armload.analysis.run import Run
from armload.analysis.tradeoff import (
    Answers,
    AtDeadline,
    Crossover,
    at_deadline,
    crossover,
    on_one_axis,
    require_same_questions,
)
from armload.core.errors import UsageError
from armload.core.values import Value, counted
from armload.evaluation.question import Question
from armload.evaluation.record import Evaluated, find_evaluation
from armload.evaluation.results import Point, points_of
from armload.evaluation.systems import system_of


class Side(Value):
    """One model of an evaluation.

    Attributes:
        evaluation: its id.
        task: that was asked.
        questions: that were asked.
        model, model_sha256: of the file.
        points: its own.
    """

    evaluation: str
    task: str
    questions: tuple[Question, ...]
    model: str
    model_sha256: str
    points: tuple[Point, ...]


class SharedAxis(Value):
    """Both accuracies over the faster one's tokens, by one ratio of speeds.

    Attributes:
        faster: name of the model whose tokens they are.
        ratio: of the seconds per token, slower over faster.
        tokens, faster_accuracy: of the faster one's budgets.
        slower_tokens, slower_accuracy: of the slower one's, multiplied by the ratio.
    """

    faster: str
    ratio: float
    tokens: tuple[float, ...]
    faster_accuracy: tuple[float, ...]
    slower_tokens: tuple[float, ...]
    slower_accuracy: tuple[float, ...]


class Tradeoff(Value):
    """Two models asked in the same way.

    Attributes:
        prompt, is_told, concludes: the way.
        a, b: their graded answers with times.
        crossover: from when on the other one is right more often.
        deadlines: both compared at the deadlines that were asked for.
        axis: by one ratio of speeds, as it has been done elsewhere; none without tokens.
    """

    prompt: str
    is_told: bool
    concludes: bool
    a: Answers
    b: Answers
    crossover: Crossover
    deadlines: tuple[AtDeadline, ...]
    axis: SharedAxis | None


def find_sides(a: str, b: str) -> tuple[Side, Side]:
    """Return what two references mean.

    Args:
        a, b: an evaluation as for ``find_evaluation``, or ``EVALUATION:MODEL`` with part of the
            name of one of its models. An empty ``b`` stands for the second model of ``a``.

    Raises:
        UsageError: an evaluation has several models and none is named, or has no second one;
            or the two are of different tasks, or were asked different questions.
    """
    if b:
        sides = _side(a), _side(b)
    else:
        evaluated = find_evaluation(a)
        names = _models(evaluated)
        if len(names) != 2:
            raise UsageError(
                f"{evaluated.evaluation.id} has {counted(len(names), 'model')}, not two.",
                f"Name two: armload tradeoff {a}:{names[0]} EVALUATION:MODEL",
            )
        sides = _of_model(evaluated, names[0]), _of_model(evaluated, names[1])
    if sides[0].task != sides[1].task:
        raise UsageError(
            f"{sides[0].evaluation} is of task {sides[0].task}, {sides[1].evaluation} of "
            f"{sides[1].task}.",
            "Compare evaluations of the same task.",
        )
    _require_same_texts(*sides)
    return sides


def _require_same_texts(a: Side, b: Side) -> None:
    """Check that questions of one number are one question: data files may be different ones.

    Raises:
        UsageError: they are not; says which is the first.
    """
    asked = {question.id: question for question in a.questions}
    for question in b.questions:
        if question != asked.get(question.id, question):
            raise UsageError(
                f"{a.evaluation} and {b.evaluation} were asked different questions: number "
                f"{question.id} is not the same in both.",
                "Evaluate both with the same --task and --data.",
            )


def check_times(side: Side, runs: Sequence[Run]) -> Latency | None:
    """Return the times that runs give for a model; none without runs.

    Raises:
        UsageError: a run is of another model, or too short.
    """
    for run in runs:
        if run.model.sha256 != side.model_sha256:
            raise UsageError(
                f"--times: {run.id} is a run of {run.model.name}, not of {side.model}.",
                "Name a run of the same model file.",
            )
    return latency_of(runs) if runs else None


def trade(
    a: Side,
    b: Side,
    *,
    times: tuple[Latency | None, Latency | None] = (None, None),
    deadlines_s: Sequence[float] = (),
) -> list[Tradeoff]:
    """Compare two models in each way in which both were asked.

    Args:
        times: of another board; none for those of the answers themselves.
        deadlines_s: at which both are compared.

    Raises:
        UsageError: they were never asked in the same way, or not the same questions.
    """
    ways = [way for way in _ways(a) if way in _ways(b)]
    if not ways:
        raise UsageError(
            f"{a.model} and {b.model} were not asked with the same prompts and budgets.",
            "Evaluate both with the same --prompt, --budget and --tell-budget.",
        )
    return [_trade(a, b, way, times, deadlines_s) for way in ways]


_Way = tuple[str, bool, bool]


def _trade(
    a: Side,
    b: Side,
    way: _Way,
    times: tuple[Latency | None, Latency | None],
    deadlines_s: Sequence[float],
) -> Tradeoff:
    names = (a.model.removesuffix(".gguf"), b.model.removesuffix(".gguf"))
    if a.model == b.model:
        names = (f"{names[0]} ({a.evaluation})", f"{names[1]} ({b.evaluation})")
    one, other = (
        system_of(name, _points(side, way), latency)
        for name, side, latency in zip(names, (a, b), times, strict=True)
    )
    require_same_questions(one, other)
    prompt, is_told, concludes = way
    return Tradeoff(
        prompt=prompt,
        is_told=is_told,
        concludes=concludes,
        a=one,
        b=other,
        crossover=crossover(one, other),
        deadlines=tuple(at_deadline(one, other, deadline) for deadline in deadlines_s),
        axis=_shared_axis(one, other, _points(a, way), _points(b, way)),
    )


def _shared_axis(
    a: Answers, b: Answers, points_a: Sequence[Point], points_b: Sequence[Point]
) -> SharedAxis | None:
    tokens_s = [_token_s(system, points) for system, points in ((a, points_a), (b, points_b))]
    if not all(tokens_s):
        return None
    (fast_s, faster), (slow_s, slower) = sorted(
        zip(tokens_s, (a, b), strict=True), key=lambda each: each[0]
    )
    ratio = slow_s / fast_s
    fast, slow = on_one_axis(faster, slower, ratio)
    return SharedAxis(
        faster=faster.name,
        ratio=ratio,
        tokens=tuple(point.tokens for point in fast),
        faster_accuracy=tuple(point.accuracy.share for point in fast),
        slower_tokens=tuple(point.tokens for point in slow),
        slower_accuracy=tuple(point.accuracy.share for point in slow),
    )


def _token_s(system: Answers, points: Sequence[Point]) -> float:
    tokens = sum(attempt.tokens for attempt in points[-1].attempts)
    return sum(row[-1] for row in system.latency_s) / tokens if tokens else 0.0


def _side(reference: str) -> Side:
    name, _, model = reference.partition(":")
    evaluated = find_evaluation(name)
    names = _models(evaluated)
    found = [each for each in names if model in each]
    if len(found) != 1:
        raise UsageError(
            f"{reference}: {evaluated.evaluation.id} has the models {', '.join(names)}.",
            f"Name one of them: {name}:{names[0]}",
        )
    return _of_model(evaluated, found[0])


def _of_model(evaluated: Evaluated, model: str) -> Side:
    evaluation = evaluated.evaluation
    if evaluation.kind != "generate":
        raise UsageError(
            f"{evaluation.id} compares choices, which have no length to trade for time.",
            "Use evaluations of a task whose answers are generated.",
        )
    part = next(part for part in evaluation.parts if part.model == model)
    return Side(
        evaluation=evaluation.id,
        task=evaluation.task,
        questions=tuple(evaluated.questions),
        model=model,
        model_sha256=part.model_sha256,
        points=tuple(point for point in points_of(evaluated) if point.model == model),
    )


def _models(evaluated: Evaluated) -> list[str]:
    return list(dict.fromkeys(part.model for part in evaluated.evaluation.parts))


def _ways(side: Side) -> list[_Way]:
    return list(dict.fromkeys(map(_way, side.points)))


def _way(point: Point) -> _Way:
    return point.prompt, point.is_told, point.concludes


def _points(side: Side, way: _Way) -> list[Point]:
    points = [point for point in side.points if _way(point) == way]
    return sorted(points, key=lambda point: point.budget or 0)
