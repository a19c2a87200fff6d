"""What is asked of which model, from what a person asks for."""

from __future__ import annotations

from pathlib import Path

import pytest

from armload.core.errors import UsageError
from armload.evaluation.preparing import parts_of
from armload.evaluation.task import Task
from armload.models.model import Model
from tests.unit.samples import model

TASK = Task(
    name="capitals",
    fields={"country": "country"},
    expected="{{ country }}",
    prompts={
        "plain": {"user": "{{ country }}?"},
        "short": {"user": "{{ country }}!", "budget_sentence": "{{ budget }} tokens."},
    },
    conclude={"text": "So:", "tokens": 4},
    budgets=(16, 8),
)
CHOICES = Task(
    name="choices",
    kind="multiple-choice",
    fields={"goal": "goal"},
    choices=("a", "b"),
    expected="A",
    prompts={"plain": {"user": "{{ goal }}"}},
)


def _model(name: str) -> Model:
    return model(Path(name)).model_copy(update={"sha256": name * 64})


MODELS = [("a.gguf", _model("a")), ("b.gguf", _model("b"))]


def _parts(task: Task = TASK, **changed: object) -> list[tuple[object, ...]]:
    wanted: dict[str, object] = {"prompts": (), "budgets": (), "tell": "no", "conclude": False}
    parts = parts_of(task, MODELS, **{**wanted, **changed})  # type: ignore[arg-type]
    return [(each.model, each.prompt, each.budgets, each.is_told) for each in parts]


def test_budgets_that_are_not_told_share_one_answer() -> None:
    assert _parts() == [("a", "plain", (8, 16), False), ("b", "plain", (8, 16), False)]


def test_each_told_budget_is_asked_apart_and_of_every_model_in_turn() -> None:
    found = _parts(prompts=("short",), tell="both", budgets=(4, 2))
    assert found == [
        ("a", "short", (2, 4), False),
        ("b", "short", (2, 4), False),
        ("a", "short", (2,), True),
        ("b", "short", (2,), True),
        ("a", "short", (4,), True),
        ("b", "short", (4,), True),
    ]


def test_each_concluded_budget_is_asked_apart() -> None:
    assert {budgets for _, _, budgets, _ in _parts(conclude=True)} == {(8,), (16,)}


def test_choices_have_no_budget() -> None:
    assert [budgets for _, _, budgets, _ in _parts(CHOICES)] == [(), ()]


def test_a_prompt_that_a_task_does_not_have_is_refused() -> None:
    with pytest.raises(UsageError, match="no prompt 'long'"):
        _parts(prompts=("long",))
