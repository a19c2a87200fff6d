"""An evaluation is begun, resumed, or refused before anything is asked."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from armload.cli.verbs.evaluation import EvalOptions, evaluate
from armload.core.errors import UsageError
from armload.core.progress import Silent
from armload.evaluation.preparing import EvaluationRequest, PreparedEvaluation, prepare
from armload.evaluation.record import EvaluationFolder
from armload.models.find import model_called

MODEL = "word-problems:Q2_K"
CHOICES = """\
kind: multiple-choice
data: choices.jsonl
fields: {goal: goal}
choices: [a, b]
expected: "0"
prompts: {plain: {user: "{{ goal }}"}}
"""


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def prepared(*, task: str = "word-problems", **options: object) -> PreparedEvaluation:
    asked = EvaluationRequest(boards=("virtual",), task=task, limit=2, models=(MODEL,))
    return prepare(asked.model_copy(update=options), Silent(), new=False)


def test_an_evaluation_is_resumed_with_the_grader_that_is_asked_for() -> None:
    first = prepared().evaluated
    assert first.evaluation.grader == "boxed"
    again = prepared(grader="number").evaluated
    assert (again.folder, again.evaluation.grader) == (first.folder, "number")
    assert EvaluationFolder.read(first.folder).evaluation.grader == "number"


@pytest.mark.parametrize("option", ["context_tokens", "source", "ref", "compiler"])
def test_what_decides_the_answers_makes_another_evaluation(workspace: Path, option: str) -> None:
    begun = []
    for more in ({option: "16"}, {option: "16"}, {option: "32"}, {}):
        with pytest.raises(UsageError, match="no board named 'nowhere'"):
            evaluate.body(
                EvalOptions.typed({"board": "nowhere", "model": MODEL, "limit": "2", **more})
            )
        begun.append(len(list(workspace.glob("evaluations/*/evaluation.json"))))
    assert begun == [1, 1, 2, 3]


def test_models_whose_files_have_one_name_are_refused(workspace: Path) -> None:
    for folder, model in (("x", MODEL), ("y", "word-problems:Q8_0")):
        (workspace / folder).mkdir()
        shutil.copy(model_called(model, Silent()).path, workspace / folder / "m.gguf")
    with pytest.raises(UsageError, match=r"x/m\.gguf and y/m\.gguf have the same file name") as why:
        prepared(models=("x/m.gguf", "y/m.gguf"))
    assert "armload tradeoff" in why.value.remedy
    assert not (workspace / "evaluations").exists()


def test_a_grader_of_choices_is_refused(workspace: Path) -> None:
    (workspace / "choices.jsonl").write_text('{"goal": "open", "a": "push", "b": "eat"}\n' * 2)
    (workspace / "choices.yaml").write_text(CHOICES)
    with pytest.raises(UsageError, match="compares choices, which need no grader"):
        prepared(task="choices.yaml", grader="boxed")
    assert prepared(task="choices.yaml").evaluated.evaluation.kind == "multiple-choice"
