"""An evaluation is begun, resumed, or refused before anything is asked."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from armload.cli.evaluation_options import EvalOptions, check_combination
from armload.cli.execution import run_verb
from armload.cli.verbs.evaluation import evaluate
from armload.core.errors import UsageError
from armload.core.progress import Silent
from armload.evaluation.data import load_questions
from armload.evaluation.items import items_of
from armload.evaluation.preparing import EvaluationRequest, PreparedEvaluation, prepare
from armload.evaluation.record import EvaluationFolder
from armload.models.find import model_called
from tests.chat_models import with_chat_template

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
    (workspace / "boards").mkdir(exist_ok=True)
    beyond = "target: rk3568\nreach: {kind: hdc, program: no-such-hdc}\n"
    (workspace / "boards" / "beyond.yaml").write_text(beyond)
    begun = []
    for more in ({option: "16"}, {option: "16"}, {option: "32"}, {}):
        with pytest.raises(SystemExit):
            run_verb(evaluate, {"board": "beyond", "model": MODEL, "limit": "2", **more})
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


def test_what_a_task_of_choices_has_no_use_for_is_refused(workspace: Path) -> None:
    (workspace / "choices.jsonl").write_text('{"goal": "open", "a": "push", "b": "eat"}\n' * 2)
    (workspace / "choices.yaml").write_text(CHOICES)
    for words in ({"grader": "boxed"}, {"budget": "8"}, {"template": "chatml"}):
        with pytest.raises(UsageError, match=r"--\w+ cannot be combined .* is multiple choice"):
            check_combination(EvalOptions.typed({"task": "choices.yaml", **words}))
    assert prepared(task="choices.yaml").evaluated.evaluation.kind == "multiple-choice"


TASK = """\
kind: generate
data: questions.jsonl
fields: {question: question}
expected: "{{ question }}"
prompts: {plain: {system: Answer in one word., user: "{{ question }}"}}
grader: number
"""
TAKES_SYSTEM = "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}{% endfor %}"
REJECTS_SYSTEM = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}"
    "{{ raise_exception('System role not supported') }}{% endif %}" + TAKES_SYSTEM
)
LEAVES_OUT = "{% for m in messages if m.role != 'system' %}{{ m.content }}{% endfor %}"
REJECTS_ALL = "{{ raise_exception('Use\nthe API') }}"
NOT_FOR_JINJA = "{% generation %}" + TAKES_SYSTEM + "{% endgeneration %}"


def asked_with_template(workspace: Path, template: str) -> tuple[PreparedEvaluation, list[str]]:
    (workspace / "task.yaml").write_text(TASK)
    (workspace / "questions.jsonl").write_text('{"question": "1"}\n{"question": "2"}\n')
    model = model_called(MODEL, Silent()).path
    path = with_chat_template(model, workspace / "chat.gguf", template)
    lines: list[str] = []

    class Told(Silent):
        def say(self, text: str) -> None:
            lines.append(text)

    asked = EvaluationRequest(boards=("virtual",), task="task.yaml", models=(str(path),))
    return prepare(asked, Told(), new=True), lines


@pytest.mark.parametrize("template", [TAKES_SYSTEM, NOT_FOR_JINJA])
def test_a_system_message_that_the_template_takes_stays_one(workspace: Path, template: str) -> None:
    found, lines = asked_with_template(workspace, template)
    (part,) = found.evaluated.evaluation.parts
    assert not part.system_in_user
    (item, _) = items_of(found.task, part, load_questions(found.task))
    assert item["messages"] == [
        {"role": "system", "content": "Answer in one word."},
        {"role": "user", "content": "1"},
    ]
    assert not any("template" in line for line in lines)


@pytest.mark.parametrize(
    ("template", "why"),
    [(REJECTS_SYSTEM, "System role not supported"), (LEAVES_OUT, "it leaves the text out")],
)
def test_a_system_message_that_the_template_rejects_is_put_into_the_users(
    workspace: Path, template: str, why: str
) -> None:
    found, lines = asked_with_template(workspace, template)
    (part,) = found.evaluated.evaluation.parts
    assert part.system_in_user
    (item, _) = items_of(found.task, part, load_questions(found.task))
    assert item["messages"] == [{"role": "user", "content": "Answer in one word.\n1"}]
    assert sum(f"rejects a system message ({why})" in line for line in lines) == 1


def test_a_template_that_rejects_the_task_is_refused_before_anything_is_copied(
    workspace: Path,
) -> None:
    with pytest.raises(UsageError, match=r"rejects the messages of task .*: Use the API\."):
        asked_with_template(workspace, REJECTS_ALL)
    assert not list(workspace.glob("evaluations/*"))
