"""From a question to what a model is given, and to the scorer's items: one JSON line each."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from armload.core.files import write_whole
from armload.core.values import Value
from armload.engines.scorer import SeenImages
from armload.evaluation.question import Question
from armload.evaluation.record import Part
from armload.evaluation.task import Prompt, Task, filled


class Message(Value):
    """One message of a chat."""

    role: Literal["system", "user"]
    content: str


def render(
    prompt: Prompt,
    question: Question,
    budget: int,
    *,
    tell: bool = False,
    system_in_user: bool = False,
) -> tuple[Message, ...]:
    """Return the messages that put a question: the system's, if there is one, and the user's.

    Args:
        prompt: as ``Task.prompt`` returns it.
        budget: tokens that an answer may have.
        tell: append the sentence that states the budget, which the prompt has, to the user's
            message, on its own line.
        system_in_user: put the system's message at the beginning of the user's, on lines of its
            own.

    Raises:
        DataError: a template fails for this question.
    """
    where = f"Question {question.id}"
    values: dict[str, object] = dict(question.fields)
    if question.choices:
        values["choices"] = question.choices
    user = filled(prompt.user, values, where)
    if tell:
        user += "\n" + filled(prompt.budget_sentence, {"budget": budget}, where)
    system = filled(prompt.system, values, where) if prompt.system else ""
    if system and system_in_user:
        user, system = f"{system}\n{user}", ""
    message = Message(role="user", content=user)
    return (Message(role="system", content=system), message) if system else (message,)


def context(prompt: Prompt, question: Question) -> str:
    """Return the text that the choices of a question continue."""
    return "\n".join(message.content for message in render(prompt, question, 0))


def continuations(task: Task, question: Question) -> tuple[str, ...]:
    """Return what is compared after the context: each choice, after the task's delimiter."""
    return tuple(task.delimiter + choice for choice in question.choices)


BYTES_PER_TOKEN = 2
"""Of a prompt, at least: a bound on its length in tokens that no English text reaches."""

TEMPLATE_TOKENS = 64
"""What a chat template adds."""

CONTEXT_ROUNDING_TOKENS = 64


def items_of(task: Task, part: Part, questions: Sequence[Question]) -> list[dict[str, object]]:
    """Return what the scorer is given for questions."""
    make = _choices if task.kind == "multiple-choice" else _generate
    prompt = task.prompt(part.prompt)
    return [make(task, part, prompt, question) for question in questions]


def write_items(items: Sequence[dict[str, object]], path: Path) -> Path:
    lines = "".join(f"{json.dumps(item, ensure_ascii=False)}\n" for item in items)
    write_whole(path, lines.encode())
    return path


def context_tokens(items: Sequence[dict[str, object]], seen: SeenImages | None = None) -> int:
    """Return a context that every item fits into, estimated from its texts and images."""
    needed = max((_tokens(item) + _image_tokens(item, seen) for item in items), default=0)
    return -(-needed // CONTEXT_ROUNDING_TOKENS) * CONTEXT_ROUNDING_TOKENS


def _tokens(item: dict[str, object]) -> int:
    continuations = item.get("continuations")
    choices = continuations if isinstance(continuations, list) else []
    prompt = [item.get(key) for key in ("messages", "prompt", "context", "conclude")]
    size_bytes = len(json.dumps(prompt, ensure_ascii=False).encode())
    size_bytes += max((len(choice.encode()) for choice in choices), default=0)
    numbers = (item.get(key) for key in ("max_tokens", "conclude_tokens"))
    generated = sum(number for number in numbers if isinstance(number, int))
    return size_bytes // BYTES_PER_TOKEN + TEMPLATE_TOKENS + generated


def _image_tokens(item: dict[str, object], seen: SeenImages | None) -> int:
    named = item.get("images")
    if seen is None or not isinstance(named, list):
        return 0
    return sum(seen.tokens(sha256) for sha256 in named)


def _generate(task: Task, part: Part, prompt: Prompt, question: Question) -> dict[str, object]:
    messages = render(
        *(prompt, question, part.max_tokens),
        tell=part.is_told,
        system_in_user=part.system_in_user,
    )
    item: dict[str, object] = {
        "id": question.id,
        "kind": "generate",
        "messages": [message.model_dump() for message in messages],
        "max_tokens": part.max_tokens,
        "temperature": 0,
        "template": part.template,
    }
    item |= _shown(question)
    if part.template == "model":
        item["date"] = task.date.isoformat()
    if task.template_arguments:
        item["template_arguments"] = dict(task.template_arguments)
    if task.stop:
        item["stop"] = list(task.stop)
    if part.concludes and task.conclude is not None:
        item["conclude"] = task.conclude.text
        item["conclude_tokens"] = task.conclude.tokens
    return item


def _shown(question: Question) -> dict[str, object]:
    sums = [image.sha256 for image in question.images]
    return {"images": sums} if sums else {}


def _choices(task: Task, part: Part, prompt: Prompt, question: Question) -> dict[str, object]:
    del part
    return {
        "id": question.id,
        "kind": "likelihood",
        "context": context(prompt, question),
        "continuations": list(continuations(task, question)),
        **_shown(question),
    }
