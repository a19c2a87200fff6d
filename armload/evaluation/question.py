"""What is asked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import Field

from armload.core.values import Value

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
"""The names of choices."""


class QuestionImage(Value):
    """An image that belongs to a question.

    Attributes:
        file: as the data name it.
        sha256: of what the model gets: upright, and with eight bits for each colour.
        width, height: in pixels.
        path: of that on this machine; none in a record.
    """

    file: str
    sha256: str
    width: int
    height: int
    path: Path | None = Field(default=None, exclude=True)


class Question(Value):
    """One question of a task.

    Attributes:
        id: unique in its task: the number of the question in its file, from 1.
        fields: what prompts show, by the task's names.
        expected: the right answer; of a question with choices, the letter of the right one.
        choices: to choose from; empty where the answer is free text.
        images: that the model sees before the prompt.
    """

    id: str
    fields: Mapping[str, str]
    expected: str
    choices: tuple[str, ...] = ()
    images: tuple[QuestionImage, ...] = ()
