"""Lines of points as the systems that a trade-off compares."""

from __future__ import annotations

from collections.abc import Sequence

from armload.analysis.latency import Latency
from armload.analysis.tradeoff import Answers
from armload.core.errors import UsageError
from armload.evaluation.results import Point


def system_of(name: str, points: Sequence[Point], latency: Latency | None = None) -> Answers:
    """Return one system: a model asked in one way, at several budgets.

    Args:
        name: that tells it from others.
        points: by budget, ascending.
        latency: times of a board other than the one that answered; none for the answers' own.

    Raises:
        UsageError: no question has an answer.
    """
    columns = [{attempt.question: attempt for attempt in point.attempts} for point in points]
    questions = [question for question in columns[0] if all(question in each for each in columns)]
    if not questions:
        raise UsageError(
            f"{name}: no question has been answered.",
            "Repeat the command of its evaluation, which says why if none can be.",
        )
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
    )


def on_common_questions(systems: Sequence[Answers]) -> list[Answers]:
    """Return the systems with the questions alone that all of them answered, in one order."""
    common = set.intersection(*(set(system.questions) for system in systems))
    return [_only(system, common) for system in systems]


def _only(system: Answers, wanted: set[str]) -> Answers:
    order = sorted(
        (question, number) for number, question in enumerate(system.questions) if question in wanted
    )
    numbers = [number for _, number in order]
    return system.model_copy(
        update={
            "questions": tuple(question for question, _ in order),
            "latency_s": tuple(system.latency_s[number] for number in numbers),
            "correct": tuple(system.correct[number] for number in numbers),
        }
    )
