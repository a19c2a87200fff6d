"""Tasks, their data and prompts; and what is said when one of them is wrong."""

from __future__ import annotations

import json
import sys
from datetime import date
from pathlib import Path

import pytest

from armload.core.errors import ArmloadError, DataError, MissingToolError, UsageError
from armload.core.progress import Silent
from armload.core.workspace import data_names
from armload.evaluation.data import load_questions
from armload.evaluation.items import Message, context, continuations, items_of, render
from armload.evaluation.preparing import EvaluationRequest, prepare
from armload.evaluation.question import Question
from armload.evaluation.record import Evaluation, Part
from armload.evaluation.task import DEFAULT_DATE, TASKS, Task, load_task

OWN = """\
data: questions.csv
fields:
  question: problem
  answer: solution
expected: "{{ answer.split('=') | last }}"
prompts:
  short:
    system: Be brief.
    user: |
      {{ question }}
      Answer with a number.
budget_sentence: Use at most {{ budget }} tokens.
grader: number
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(path: Path, text: str) -> str:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return str(path)


def error_of(task: Task, data: str) -> ArmloadError:
    with pytest.raises(ArmloadError) as caught:
        load_questions(task, data)
    return caught.value


def test_shipped_tasks_can_be_read() -> None:
    names = data_names(TASKS)
    assert names == ["drawings", "gsm8k", "multiple-choice", "piqa", "word-problems"]
    for name in names:
        task = load_task(name)
        assert (task.name, bool(task.data)) == (name, name in {"drawings", "word-problems"})
        assert task.data or task.data_source


def test_gsm8k_has_two_prompts_and_tells_half_of_the_budget() -> None:
    task = load_task("gsm8k")
    assert list(task.prompts) == ["steps", "verify"]
    asked = Question(id="1", fields={"question": "1 + 1?", "answer": ""}, expected="2")
    (untold,) = render(task.prompt("steps"), asked, 400)
    (told,) = render(task.prompt("steps"), asked, 400, tell=True)
    assert untold.content.startswith("1 + 1?\n")
    assert told.content == f"{untold.content}\nUse at most 200 tokens."


def test_a_task_of_ones_own_is_a_yaml_and_a_data_file_beside_it(tmp_path: Path) -> None:
    path = written(tmp_path / "own" / "sums.yaml", OWN)
    written(tmp_path / "own" / "questions.csv", '\ufeffproblem,solution\n"1 + 1, or\n2?",1+1=2\n')
    task = load_task(path)
    (question,) = load_questions(task)
    assert (task.name, question.expected) == ("sums", "2")
    assert render(task.prompt("short"), question, 50, tell=True) == (
        Message(role="system", content="Be brief."),
        Message(
            role="user",
            content="1 + 1, or\n2?\nAnswer with a number.\nUse at most 50 tokens.",
        ),
    )


def test_a_task_of_the_workspace_can_extend_a_shipped_one(tmp_path: Path) -> None:
    written(tmp_path / "boards" / "b.yaml", "extends: virtual\n")
    written(tmp_path / "tasks" / "mine.yaml", "extends: gsm8k\ndata: q.jsonl\ngrader: boxed\n")
    written(tmp_path / "tasks" / "q.jsonl", '{"question": "1+1?", "answer": "#### 2"}\n\n')
    task = load_task("mine")
    assert (task.grader, task.budgets) == ("boxed", load_task("gsm8k").budgets)
    assert load_questions(task)[0].expected == "2"


def test_word_problems_are_generated_and_the_same_each_time() -> None:
    task = load_task("word-problems")
    questions = load_questions(task, limit=20)
    assert questions == load_questions(task, limit=50)[:20]
    assert len({question.fields["question"] for question in questions}) == 20
    assert all(question.expected.isdecimal() for question in questions)


def test_a_limit_takes_the_first_questions(tmp_path: Path) -> None:
    rows = [f'{{"question": "{n}?", "answer": "{n}"}}\n' for n in range(10)]
    data = written(tmp_path / "q.jsonl", "".join(rows))
    questions = load_questions(load_task("gsm8k"), data, 3)
    assert [(each.id, each.expected) for each in questions] == [("1", "0"), ("2", "1"), ("3", "2")]


@pytest.mark.parametrize("answer", ['"B"', '"b"', "1", '"1"'])
def test_the_right_choice_is_a_letter_or_a_number_from_0(answer: str, tmp_path: Path) -> None:
    line = f'{{"question": "Which?", "choices": ["a dog", "a cat"], "answer": {answer}}}\n'
    task = load_task("multiple-choice")
    (question,) = load_questions(task, written(tmp_path / "q.jsonl", line))
    assert question.expected == "B"
    assert context(task.prompt("question"), question) == "Question: Which?\nAnswer:"
    assert continuations(task, question) == (" a dog", " a cat")


def test_choices_may_be_fields_of_their_own(tmp_path: Path) -> None:
    line = '{"goal": "Boil water", "sol1": "Heat it", "sol2": "Cool it", "label": 0}\n'
    (question,) = load_questions(load_task("piqa"), written(tmp_path / "q.jsonl", line))
    assert (question.choices, question.expected) == (("Heat it", "Cool it"), "A")


def test_data_may_be_parquet_whose_rows_are_read_as_far_as_they_are_asked_for(
    tmp_path: Path,
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    arrow = pytest.importorskip("pyarrow")
    rows = [
        {"goal": f"Boil {n}", "sol1": "Heat it", "sol2": "Cool it", "label": n % 2}
        for n in range(600)
    ]
    path = tmp_path / "piqa.parquet"
    parquet.write_table(arrow.Table.from_pylist(rows), path, row_group_size=200)
    as_lines = written(tmp_path / "piqa.jsonl", "".join(f"{json.dumps(row)}\n" for row in rows))
    task = load_task("piqa")
    questions = load_questions(task, str(path))
    assert questions == load_questions(task, as_lines)
    assert load_questions(task, str(path), 3) == questions[:3]
    rows[300] |= {"sol2": None}
    parquet.write_table(arrow.Table.from_pylist(rows), path)
    assert "row 301: there is no field 'sol2'" in error_of(task, str(path)).message
    path.write_bytes(path.read_bytes()[:-9])
    assert "not a whole Parquet file" in error_of(task, str(path)).message


def test_parquet_without_its_package_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    error = error_of(load_task("piqa"), written(tmp_path / "q.parquet", "PAR1"))
    assert isinstance(error, MissingToolError)
    assert "pyarrow" in error.remedy


def test_a_task_without_data_says_how_to_give_them_and_where_they_are() -> None:
    error = error_of(load_task("gsm8k"), "")
    assert error.message == "Task gsm8k comes without data."
    assert "--data FILE" in error.remedy
    assert "grade-school-math" in error.remedy


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"question": "?", "answer": "1"}\n{"question": \n', "line 2: invalid JSON"),
        ('{"question": "?", "answer": "1"}\n[1]\n', "line 2: not a JSON object"),
        ('\n{"question": "?", "answr": "1"}\n', "line 2: there is no field 'answer'"),
        ('{"question": "?", "answer": null}\n', "line 1: there is no field 'answer'"),
        ("\n", "holds no questions"),
    ],
)
def test_a_wrong_line_is_named(text: str, said: str, tmp_path: Path) -> None:
    data = written(tmp_path / "q.jsonl", text)
    error = error_of(load_task("gsm8k"), data)
    assert isinstance(error, DataError)
    assert data in error.message
    assert said in error.message
    assert error.remedy


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('"choices": ["a", "b"], "answer": "C"', "line 1: the correct answer is 'C'"),
        ('"choices": ["a", "b"], "answer": 2', "line 1: the correct answer is '2'"),
        ('"choices": ["a", ""], "answer": 0', "line 1: the choices must be 2 to 26 texts"),
        ('"choices": "a", "answer": 0', "line 1: the choices must be 2 to 26 texts"),
    ],
)
def test_wrong_choices_are_named(line: str, said: str, tmp_path: Path) -> None:
    data = written(tmp_path / "q.jsonl", f'{{"question": "?", {line}}}\n')
    assert said in error_of(load_task("multiple-choice"), data).message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("problem,solution\n1,2\n1,2,3\n", "line 3: more or fewer values"),
        ("problem,solution\n1\n", "line 2: more or fewer values"),
        ('problem,solution\n1,"2\n', "invalid CSV"),
        ("problem,answer\n1,2\n", "there is no field 'solution'"),
    ],
)
def test_a_wrong_line_of_csv_is_named(text: str, said: str, tmp_path: Path) -> None:
    task = load_task(written(tmp_path / "own.yaml", OWN))
    assert said in error_of(task, written(tmp_path / "q.csv", text)).message


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("grader: number", "grader: nmber", "line 13: grader: there is no grader 'nmber'"),
        ("data:", "dta:", "line 1: there is no key 'dta'"),
        ("{{ question }}", "{{ problem }}", "line 6: prompts: short: the template uses 'problem'"),
        ("{{ question }}", "{{ question", "line 6: prompts: short: line "),
        ("{{ budget }}", "{{ budgt }}", "line 12: budget_sentence: the template uses 'budgt'"),
        ("{{ answer.", "{{ solution.", "line 5: expected: the template uses 'solution'"),
        (
            "grader: number",
            "kind: multiple-choice\nchoices: [a, b]\nstop: [Q]",
            "line 15: stop: a multiple-choice task has no chat",
        ),
        (
            "grader: number",
            "kind: multiple-choice",
            "line 1: choices: a multiple-choice task needs them",
        ),
    ],
)
def test_a_mistake_in_a_task_is_answered_with_file_line_and_key(
    old: str, new: str, said: str, tmp_path: Path
) -> None:
    path = written(tmp_path / "own.yaml", OWN.replace(old, new))
    with pytest.raises(DataError) as caught:
        load_task(path)
    assert path in caught.value.message
    assert said in caught.value.message


@pytest.mark.parametrize(
    "expression", ["{{ ''.__class__.__mro__ }}", "{{ answer.missing.more }}", "{{ answer[99] }}x"]
)
def test_a_template_reaches_nothing_but_its_values(expression: str, tmp_path: Path) -> None:
    start, _, rest = OWN.partition("expected:")
    text = f'{start}expected: "{expression}"\n' + rest.partition("\n")[2]
    task = load_task(written(tmp_path / "own.yaml", text))
    data = written(tmp_path / "q.csv", "problem,solution\n1,2\n")
    assert "line 2: the template fails" in error_of(task, data).message


def test_template_arguments_and_stops_reach_the_scorer(tmp_path: Path) -> None:
    more = 'template_arguments: {enable_thinking: false}\nstop: ["\\n\\n", "Q:"]\n'
    plain, direct = (
        load_task(written(tmp_path / "own.yaml", text)) for text in (OWN, f"{OWN}{more}")
    )
    part = Part(model="m", model_sha256="0", model_reference="m", prompt="short", budgets=(8,))
    question = Question(id="1", fields={"question": "1 + 1", "answer": "2"}, expected="2")
    (before,), (after,) = (items_of(task, part, [question]) for task in (plain, direct))
    assert after == before | {
        "template_arguments": {"enable_thinking": False},
        "stop": ["\n\n", "Q:"],
    }


def test_an_evaluation_resumes_only_with_the_same_template_arguments(tmp_path: Path) -> None:
    written(tmp_path / "questions.csv", "problem,solution\n1 + 1,2\n")
    asked = EvaluationRequest(boards=("here",), models=("word-problems:Q2_K",), task="own.yaml")

    def begun(more: str = "") -> str:
        written(tmp_path / "own.yaml", OWN + more)
        return prepare(asked, Silent(), new=False).evaluated.evaluation.id

    first = begun()
    assert begun() == first
    assert begun("template_arguments: {enable_thinking: false}\n") != first


def test_answers_of_other_evaluations_are_not_read(tmp_path: Path) -> None:
    written(tmp_path / "questions.csv", "problem,solution\n1 + 1,2\n")
    written(tmp_path / "own.yaml", OWN)
    asked = EvaluationRequest(boards=("here",), models=("word-problems:Q2_K",), task="own.yaml")
    earlier = prepare(asked, Silent(), new=False).evaluated
    (earlier.folder / "answers-0.jsonl").write_text("damaged\n")
    said: list[str] = []

    class Listening(Silent):
        def say(self, text: str) -> None:
            said.append(text)

    prepare(asked.model_copy(update={"budgets": (8,)}), Listening(), new=False)
    assert said == []
    prepare(asked, Listening(), new=False)
    assert "answers-0.jsonl" in said[0]


def test_the_date_that_templates_are_given_belongs_to_the_evaluation(tmp_path: Path) -> None:
    written(tmp_path / "questions.csv", "problem,solution\n1 + 1,2\n")
    asked = EvaluationRequest(boards=("here",), models=("word-problems:Q2_K",), task="own.yaml")

    def begun(more: str = "") -> Evaluation:
        written(tmp_path / "own.yaml", OWN + more)
        return prepare(asked, Silent(), new=False).evaluated.evaluation

    first, other = begun(), begun("date: 2019-03-07\n")
    assert first.template_date == DEFAULT_DATE
    assert other.template_date == date(2019, 3, 7)
    assert other.id != first.id
    assert begun("date: 2019-03-07\n").id == other.id


def test_unknown_names_are_answered_with_those_that_exist() -> None:
    with pytest.raises(UsageError, match="no task named 'gsm8'") as caught:
        load_task("gsm8")
    assert "gsm8k" in caught.value.remedy
    with pytest.raises(UsageError, match="no prompt 'quick'") as caught:
        load_task("gsm8k").prompt("quick")
    assert "steps, verify" in caught.value.remedy
    with pytest.raises(UsageError, match=r"no task 'absent\.yaml'"):
        load_task("absent.yaml")
