"""Lines of points as the systems that a trade-off compares."""

from __future__ import annotations

from collections.abc import Sequence

from armload.analysis.latency import Latency
from armload.analysis.tradeoff import Answers
from armload.evaluation.results import Point


def answered(points: Sequence[Point]) -> list[str]:
    """Return the questions that have an answer at every budget."""
    columns = [{attempt.question for attempt in point.attempts} for point in points]
    return [
        attempt.question
        for attempt in points[0].attempts
        if all(attempt.question in column for column in columns)
    ]


def system_of(name: str, points: Sequence[Point], latency: Latency | None = None) -> Answers:
    """Return one system: a model asked in one way, at several budgets.

    Args:
        name: that tells it from others.
        points: by budget, ascending; at least one question has an answer at all of them.
        latency: times of a board other than the one that answered; none for the answers' own.
    """
    questions = answered(points)
    columns = [{attempt.question: attempt for attempt in point.attempts} for point in points]
    rows = [[column[question] for column in columns] for question in questions]
    return Answers(
        name=name,
        questions=tuple(questions),
        budgets=tuple(point.budget or 0 for point in points),
        latency_s=tuple(
            tuple(
                latency.seconds(each.prompt_tokens, each.tokens) if latency else each.seconds
                for each in row
            )
            for row in rows
        ),
        correct=tuple(tuple(each.is_correct for each in row) for row in rows),
        boxed=tuple(tuple(each.is_boxed for each in row) for row in rows),
    )


def on_common_questions(systems: Sequence[Answers]) -> list[Answers]:
    """Return the systems with the questions alone that all of them answered, in one order."""
    first, *others = systems
    common = set(first.questions).intersection(*(other.questions for other in others))
    order = [question for question in first.questions if question in common]
    return [_only(system, order) for system in systems]


def _only(system: Answers, order: Sequence[str]) -> Answers:
    numbers = {question: number for number, question in enumerate(system.questions)}
    rows = {
        name: tuple(values[numbers[question]] for question in order) if values else ()
        for name, values in (
            ("latency_s", system.latency_s),
            ("correct", system.correct),
            ("boxed", system.boxed),
        )
    }
    return system.model_copy(update={"questions": tuple(order), **rows})
