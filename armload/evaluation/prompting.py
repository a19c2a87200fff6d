"""From a question to what a model is given."""

from __future__ import annotations

from typing import Literal

from armload.core.errors import UsageError
from armload.core.values import Value
from armload.evaluation.question import Question
from armload.evaluation.task import Prompt, Task
from armload.evaluation.templates import filled


class Message(Value):
    """One message of a chat."""

    role: Literal["system", "user"]
    content: str


def render(
    prompt: Prompt, question: Question, budget: int, *, tell: bool = False
) -> tuple[Message, ...]:
    """Return the messages that put a question: the system's, if there is one, and the user's.

    Args:
        prompt: as ``Task.prompt`` returns it.
        budget: tokens that an answer may have.
        tell: append the sentence that states the budget to the user's message, on its own line.

    Raises:
        UsageError: the budget is to be told, and there is no sentence for it.
        DataError: a template fails for this question.
    """
    if tell and not prompt.budget_sentence:
        raise UsageError(
            "This prompt has no sentence that tells the model its budget.",
            "Add budget_sentence to the task's file, such as 'Use at most {{ budget }} tokens.', "
            "or use --tell-budget no.",
        )
    where = f"Question {question.id}"
    values: dict[str, object] = dict(question.fields)
    if question.choices:
        values["choices"] = question.choices
    user = filled(prompt.user, values, where)
    if tell:
        user += "\n" + filled(prompt.budget_sentence, {"budget": budget}, where)
    message = Message(role="user", content=user)
    if not prompt.system:
        return (message,)
    return (Message(role="system", content=filled(prompt.system, values, where)), message)


def context(prompt: Prompt, question: Question) -> str:
    """Return the text that the choices of a question continue.

    Raises:
        DataError: a template fails for this question.
    """
    return "\n".join(message.content for message in render(prompt, question, 0))


def continuations(task: Task, question: Question) -> tuple[str, ...]:
    """Return what is compared after the context: each choice, after the task's delimiter."""
    return tuple(task.delimiter + choice for choice in question.choices)
