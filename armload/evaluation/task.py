"""Tasks: what is asked, in which words, and how an answer is graded. Each is one YAML file."""

from __future__ import annotations

import datetime
import functools
from collections.abc import Collection, Mapping
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, JsonValue, ValidationInfo, field_validator

from armload.core.deciding import DESCRIBES, Decides, Words
from armload.core.errors import DataError, UsageError
from armload.core.files import require_file
from armload.core.values import Value
from armload.core.workspace import data_file, data_folders
from armload.evaluation.data_files import Format
from armload.evaluation.grading.registry import GRADERS

if TYPE_CHECKING:
    from jinja2 import Template
    from jinja2.sandbox import ImmutableSandboxedEnvironment


def check_template(text: str, names: Collection[str]) -> None:
    """Check a template before anything is rendered.

    Args:
        names: of the values that it may use.

    Raises:
        ValueError: it is malformed, or uses other names; says which.
    """
    from jinja2 import TemplateSyntaxError, meta

    try:
        tree = _environment().parse(text)
    except TemplateSyntaxError as error:
        raise ValueError(f"line {error.lineno} of the template: {error.message}") from error
    unknown = sorted(meta.find_undeclared_variables(tree) - set(names))
    if unknown:
        known = ", ".join(sorted(names)) or "none"
        raise ValueError(f"the template uses {unknown[0]!r}; allowed names: {known}")


def filled(text: str, values: Mapping[str, object], where: str) -> str:
    """Fill a template.

    Args:
        where: it stands and what it was filled with, for the message.
    """
    try:
        return _compiled(text).render(values)
    except Exception as error:  # a template raises whatever its filters do
        raise DataError(
            f"{where}: the template fails: {str(error) or type(error).__name__}.",
            "Correct the template in the task's file, or the data.",
        ) from error


@functools.lru_cache(maxsize=64)
def _compiled(text: str) -> Template:
    return _environment().from_string(text)


@functools.cache
def _environment() -> ImmutableSandboxedEnvironment:
    from jinja2 import StrictUndefined
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    # What comes out is a prompt, not HTML.
    return ImmutableSandboxedEnvironment(undefined=StrictUndefined, autoescape=False)


DEFAULT_DATE = datetime.date(2026, 1, 1)
"""Any would do; that it stays the same keeps evaluations comparable."""

TASKS = "tasks"
"""The folder of task files."""

TaskKind = Literal["generate", "multiple-choice"]
Count = Annotated[int, Field(ge=1)]
Text = Annotated[str, Field(min_length=1), DESCRIBES]
Choices = Text | Annotated[tuple[Text, ...], Field(min_length=2)]


def _is_beside_the_task(data: object) -> bool:
    """Say whether data is generated, or a file in the task's folder or below it."""
    if not isinstance(data, str):
        return False
    kind, colon, _ = data.partition(":")
    path = PurePath(data)
    return kind == "generated" if colon else not (path.is_absolute() or ".." in path.parts)


class Prompt(Value):
    """How a question is put.

    Attributes:
        system: template of the system message; empty for none.
        user: template of the user's message. Of a multiple-choice task, the text that each choice
            continues.
        budget_sentence: template of the sentence that tells the model its budget of tokens
            (``budget``); empty takes the task's.
    """

    system: Words = ""
    user: Text
    budget_sentence: Words = ""


class Conclusion(Value):
    """What makes a model commit to an answer when its budget is used up.

    Attributes:
        text: that is appended to its answer.
        tokens: that it may generate after that.
    """

    text: Text
    tokens: Count


class Task(Value):
    """A task.

    Templates are Jinja2 and see the names of ``fields`` and, if there are any, ``choices``.

    Attributes:
        name: of the task's file.
        description: for people.
        kind: ``multiple-choice`` compares the likelihoods of given choices.
        data: a file, relative to the task's; ``hf:ORG/REPO/FILE``; ``generated:word-problems``;
            empty if it must be given with each evaluation.
        data_source: where to get the data from, if they do not come with the task.
        format: of a data file whose name ends in none of ``.jsonl``, ``.csv`` and ``.parquet``.
        fields: of a question, each with its name in the data.
        choices: the field in the data that holds the list of choices, or the fields that hold one
            each.
        image: the field in the data that names an image file, relative to the data's folder, or
            holds a list of them; none where a question has no image.
        delimiter: between a prompt and a choice.
        expected: template of the right answer; with choices, of the letter of the right one or
            its number, from 0.
        prompts: by name; the first is the default.
        budget_sentence: as in ``Prompt``.
        conclude: what to append at the end of the budget.
        template_arguments: variables of the chat template, such as ``enable_thinking``.
        date: that a chat template is given, so that prompts are the same on any day.
        stop: texts at which an answer ends, and which are not part of it.
        grader: of free text.
        budgets: the default ones, in tokens.
    """

    name: Words = ""
    description: Words = ""
    kind: TaskKind = "generate"
    data: Annotated[str, Decides(unless=_is_beside_the_task)] = ""
    data_source: Words = ""
    format: Format = "jsonl"
    fields: Annotated[Mapping[str, Text], Field(min_length=1)]
    choices: Annotated[Choices | None, Field(validate_default=True)] = None
    image: Text | None = None
    delimiter: Words = " "
    expected: Text
    budget_sentence: Words = ""
    prompts: Annotated[Mapping[str, Prompt], Field(min_length=1)]
    conclude: Conclusion | None = None
    template_arguments: Annotated[Mapping[str, JsonValue], DESCRIBES] = {}
    date: datetime.date = DEFAULT_DATE
    stop: tuple[Text, ...] = ()
    grader: Words = "exact"
    budgets: tuple[Count, ...] = ()

    @field_validator("choices")
    @classmethod
    def _kind_has_choices(cls, choices: Choices | None, info: ValidationInfo) -> Choices | None:
        if choices is None and info.data.get("kind") == "multiple-choice":
            raise ValueError("a multiple-choice task needs them")
        return choices

    @field_validator("expected")
    @classmethod
    def _expected_uses_fields(cls, text: str, info: ValidationInfo) -> str:
        if "fields" in info.data:
            check_template(text, info.data["fields"])
        return text

    @field_validator("budget_sentence")
    @classmethod
    def _sentence_uses_budget(cls, text: str) -> str:
        check_template(text, {"budget"})
        return text

    @field_validator("prompts")
    @classmethod
    def _prompts_use_fields(
        cls, prompts: Mapping[str, Prompt], info: ValidationInfo
    ) -> Mapping[str, Prompt]:
        choices = {"choices"} if info.data.get("choices") else set()
        names = {*info.data.get("fields", ()), *choices}
        for name, prompt in prompts.items() if "fields" in info.data else ():
            try:
                check_template(prompt.system, names)
                check_template(prompt.user, names)
                check_template(prompt.budget_sentence, {"budget"})
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from error
        return prompts

    @field_validator("template_arguments", "stop")
    @classmethod
    def _kind_generates(cls, found: object, info: ValidationInfo) -> object:
        if found and info.data.get("kind") == "multiple-choice":
            raise ValueError("a multiple-choice task has no chat, and its answers no end")
        return found

    @field_validator("grader")
    @classmethod
    def _grader_is_known(cls, name: str) -> str:
        if name not in GRADERS:
            raise ValueError(f"there is no grader {name!r}; graders: {', '.join(GRADERS)}")
        return name

    def prompt(self, name: str) -> Prompt:
        """Return a prompt with the sentence that counts for it."""
        if name not in self.prompts:
            known = ", ".join(self.prompts)
            raise UsageError(f"Task {self.name} has no prompt {name!r}.", f"Prompts: {known}.")
        prompt = self.prompts[name]
        sentence = prompt.budget_sentence or self.budget_sentence
        return prompt.model_copy(update={"budget_sentence": sentence})


def load_task(name_or_path: str) -> Task:
    """Read ``tasks/NAME.yaml``, the person's own first, or a file with another path.

    A relative ``data`` becomes the path that it is relative to the task's file.
    """
    from armload.core.yamlfile import load_file, load_named

    if name_or_path.endswith((".yaml", ".yml")):
        path = Path(name_or_path).expanduser()
        require_file(path, "task", "Give the name of a task or the path of its YAML file.")
        task = load_file(path, Task)
        task = task.model_copy(update={"name": task.name or path.stem})
    else:
        path = data_file(TASKS, name_or_path)
        task = load_named(TASKS, name_or_path, Task)
    if not task.data or ":" in task.data:
        return task
    # A task may extend one of another folder, whose data lie there.
    places = [folder / task.data for folder in (path.parent, *data_folders(TASKS))]
    found = next((place for place in places if place.is_file()), places[0])
    return task.model_copy(update={"data": str(found)})
