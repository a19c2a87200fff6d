"""From what a person asks for to the parts of an evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from armload.core.errors import UsageError
from armload.evaluation.record import Part, Template
from armload.evaluation.task import Task
from armload.models.model import Model

Told = Literal["no", "yes", "both"]
"""Whether prompts state the budget."""

DEFAULT_BUDGETS = (64, 128, 256)


def parts_of(
    task: Task,
    models: Sequence[tuple[str, Model]],
    *,
    prompts: Sequence[str],
    budgets: Sequence[int],
    tell: Told,
    conclude: bool,
    template: Template = "model",
) -> list[Part]:
    """Return what is asked of each model, the same of all of them.

    Budgets that a model is not told of need one answer, as long as the largest: what it is at
    another budget is its beginning. A budget that is told, or concluded, needs answers of its own.

    Args:
        models: with the names that a person gave them.
        prompts: names; empty for the task's first.
        budgets: in tokens; empty for the task's own.
        template: for chats, of all models.

    Raises:
        UsageError: the task has no such prompt, or nothing to tell or to conclude with.
    """
    names = list(dict.fromkeys(prompts)) or [next(iter(task.prompts))]
    for name in names:
        sentence = task.prompt(name).budget_sentence
        if tell != "no" and not sentence and task.kind == "generate":
            raise UsageError(
                f"Task {task.name}: its prompt {name} has no sentence that states the budget.",
                "Add budget_sentence to the task's file, or use --tell-budget no.",
            )
    if conclude and task.conclude is None:
        raise UsageError(
            f"Task {task.name} has no sentence to conclude with.",
            "Add conclude to the task's file, or leave out --conclude.",
        )
    if task.kind == "multiple-choice":
        if budgets or tell != "no" or conclude or template != "model":
            raise UsageError(
                f"Task {task.name} compares choices: no answer is generated.",
                "Leave out --budget, --tell-budget, --conclude and --template.",
            )
        ways: list[dict[str, object]] = [{}]
    else:
        wanted = sorted(set(budgets or task.budgets or DEFAULT_BUDGETS))
        ways = _ways(wanted, tell, conclude=conclude)
    return [
        Part(
            model=model.name,
            model_sha256=model.sha256,
            model_reference=reference,
            prompt=name,
            template=template,
            **way,
        )
        for name in names
        for way in ways
        for reference, model in models
    ]


def _ways(budgets: Sequence[int], tell: Told, *, conclude: bool) -> list[dict[str, object]]:
    told = {"no": [False], "yes": [True], "both": [False, True]}[tell]
    ways: list[dict[str, object]] = []
    for is_told in told:
        if is_told or conclude:
            ways += [
                {"budgets": (budget,), "is_told": is_told, "concludes": conclude}
                for budget in budgets
            ]
        else:
            ways.append({"budgets": tuple(budgets)})
    return ways
