"""Whether a model's chat template takes a task's messages, seen before anything is copied."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from armload.core.errors import UsageError
from armload.evaluation.items import Message, render
from armload.evaluation.question import Question
from armload.evaluation.record import Part
from armload.evaluation.task import Task


class _RejectedError(Exception):
    """What a template raises with ``raise_exception``."""


def rejection(template: str, messages: Sequence[Message], task: Task) -> str:
    """Return why a chat template rejects messages; empty where it does not.

    One that leaves a system message out rejects it too. One that Jinja cannot render, but llama.cpp
    perhaps can, rejects nothing.
    """
    # Templates come with models, so with anybody's text: they are rendered in a sandbox.
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def raise_exception(words: object) -> None:
        raise _RejectedError(str(words))

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = lambda value, **_: json.dumps(value, ensure_ascii=False)
    values: Mapping[str, object] = {
        "messages": [each.model_dump() for each in messages],
        "add_generation_prompt": True,
        "bos_token": "",
        "eos_token": "",
        "raise_exception": raise_exception,
        "strftime_now": task.date.strftime,
        **task.template_arguments,
    }
    try:
        text = environment.from_string(template).render(values)
    except _RejectedError as error:
        return " ".join(str(error).split()) or "without a reason"
    except Exception:  # noqa: BLE001 - a template raises whatever its filters do
        return ""
    is_lost = any(each.role == "system" and each.content.strip() not in text for each in messages)
    return "it leaves the text out" if is_lost else ""


def fitted_part(task: Task, part: Part, template: str, question: Question) -> tuple[Part, str]:
    """Return a part whose messages a model's chat template takes, and what was changed for that.

    Where it rejects a system message, that text goes before the user's, as llama.cpp's own server
    has it.

    Raises:
        UsageError: it rejects that too.
    """
    prompt = task.prompt(part.prompt)
    merged = part.model_copy(update={"system_in_user": True})
    words = ""
    for each in (part, merged) if prompt.system else (part,):
        messages = render(
            *(prompt, question, part.max_tokens),
            tell=part.is_told,
            system_in_user=each.system_in_user,
        )
        rejected = rejection(template, messages, task)
        if not rejected:
            note = (
                f"{part.model}: its chat template rejects a system message ({words}). The task's "
                "system message is put at the beginning of the user's message."
            )
            return each, note if each.system_in_user else ""
        words = words or rejected
    raise UsageError(
        f"--model {part.model_reference}: its chat template rejects the messages of task "
        f"{task.name}: {words}.",
        "Use --template chatml or --template none, or change the prompt in the task's file.",
    )
