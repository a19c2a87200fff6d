"""Which of a question's choices a model takes for the right one."""

from __future__ import annotations

from collections.abc import Sequence

from armload.core.values import Value
from armload.evaluation.question import LETTERS, Question


class ChoiceGrade(Value):
    """What a model chose, by two measures.

    Attributes:
        chosen: letter of the choice with the largest log-likelihood.
        chosen_norm: of the one with the largest log-likelihood per character.
        acc, acc_norm: whether they are right.
    """

    chosen: str
    chosen_norm: str
    acc: bool
    acc_norm: bool


def grade_choices(question: Question, log_likelihoods: Sequence[float]) -> ChoiceGrade:
    """Grade a question from the log-likelihoods of its choices.

    They are those of task type ``multiple_choice`` in lm-evaluation-harness 0.4.13: the length of
    a choice is in characters (code points), without the delimiter before it, although the
    log-likelihood includes the delimiter. Of equal choices the first counts.

    Args:
        log_likelihoods: of each choice, the sum over its tokens.

    Raises:
        ValueError: there is not one for each choice.
    """
    pairs = list(zip(log_likelihoods, question.choices, strict=True))
    chosen = _first_largest([total for total, _ in pairs])
    chosen_norm = _first_largest([total / len(choice) for total, choice in pairs])
    return ChoiceGrade(
        chosen=chosen,
        chosen_norm=chosen_norm,
        acc=chosen == question.expected,
        acc_norm=chosen_norm == question.expected,
    )


def _first_largest(figures: Sequence[float]) -> str:
    return LETTERS[figures.index(max(figures))]
