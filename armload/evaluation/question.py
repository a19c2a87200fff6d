"""What is asked."""

from __future__ import annotations

from collections.abc import Mapping

from armload.core.values import Value

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
"""The names of choices."""


class Question(Value):
    """One question of a task.

    Attributes:
        id: unique in its task: the number of the question in its file, from 1.
        fields: what prompts show, by the task's names.
        expected: the right answer; of a question with choices, the letter of the right one.
        choices: to choose from; empty where the answer is free text.
    """

    id: str
    fields: Mapping[str, str]
    expected: str
    choices: tuple[str, ...] = ()
