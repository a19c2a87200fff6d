"""Evaluations as a person runs them: kept, resumed, shared, graded again and compared."""

from __future__ import annotations

import json
import random
import re
import shutil
import time
from collections import Counter
from typing import Any

import pytest

from tests.chat_models import with_chat_template
from tests.outside_data import shared
from tests.person import Person

pytestmark = pytest.mark.build

MODEL = "word-problems:Q8_0"
QUESTIONS = 8
COVERED = ["armload/evaluation", "armload/engines/scorer.py", "toolchains/native/scorer"]


@pytest.fixture(scope="module")
def known_on_boards(tmp_path_factory: pytest.TempPathFactory) -> Person:
    person = Person(tmp_path_factory.mktemp("people") / "ann")
    for name in ("here", "there"):
        person.add_emulated(name)
    return person


@pytest.fixture
def ann(known_on_boards: Person) -> Person:
    """Somebody who has kept nothing, and whose boards have her models already."""
    for kept in ("evaluations", "runs"):
        shutil.rmtree(known_on_boards.folder / kept, ignore_errors=True)
    return known_on_boards


def words(*more: str, board: str = "here", limit: int = QUESTIONS) -> tuple[str, ...]:
    common = ("--task", "word-problems", "--limit", str(limit), "--threads", "1")
    return ("eval", "--board", board, *common, *more)


def answers(person: Person, evaluation: str = "*") -> list[dict[str, Any]]:
    """Return the answers of an evaluation, or of the only one, of all its parts."""
    found = []
    for path in person.folder.glob(f"evaluations/{evaluation}/answers-*.jsonl"):
        found += [json.loads(line) for line in path.read_text().splitlines()]
    return found


@pytest.mark.exhaustive(covers=["armload/evaluation", "armload/runs"])
def test_logits_are_those_of_an_earlier_run_and_not_those_of_another_quantisation(
    ann: Person,
) -> None:
    (ann.folder / "prompts.txt").write_text("Ann has 3 apples.\nBen buys 4 packs of pens.\n")
    command = ("eval", "--task", "logits", "--data", "prompts.txt", "--board", "here")
    # What it times there is of another program than the scorer: before any other test's.
    ann.types("fit", "--board", "here", "--model", MODEL)
    first = json.loads(ann.types(*command, "--model", MODEL, "--json").stdout)
    compared = (*command, "--reference", first["run"], "--fail-unless-close", "--json")
    same = json.loads(ann.types(*compared, "--model", MODEL, "--new").stdout)["agreement"]
    assert (same["close"], same["max_difference"]) == (2, 0)
    coarse = ann.types(*compared, "--model", "word-problems:Q2_K", status=13)
    assert json.loads(coarse.stdout)["agreement"]["close"] == 0


CHOICES = [
    ("Once upon a time, there was a little", ["girl named Lily.", "qx zv 77 kk"], 0),
    ("Lily and her mom went to the", ["#4 = {9} ;; vx", "park to play."], 1),
    ("Tom was happy. He said", ["thank you", "wq"], 1),
]
"""Of each question the choices and which one counts as right: in the last, the unlikely one."""


def test_choices_are_compared_by_their_likelihoods(ann: Person) -> None:
    command = ("eval", "--board", "here", "--model", str(shared("stories260K.gguf")), "--json")
    rows = [
        {"question": question, "choices": choices, "answer": "AB"[right]}
        for question, choices, right in CHOICES
    ]
    (ann.folder / "choices.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    task = ("--task", "multiple-choice", "--data", "choices.jsonl", "--parallel", "2")
    (found,) = json.loads(ann.types(*command, *task).stdout)["points"]
    assert (found["questions"], found["correct"], found["accuracy"]["correct"]) == (3, 2, 2)
    # By the definitions of the harness, from what the scorer wrote.
    normalised = 0
    for answer in answers(ann):
        _, choices, right = CHOICES[int(answer["id"]) - 1]
        sums = [sum(each["log_likelihoods"]) for each in answer["continuations"]]
        by_length = [each / len(text) for each, text in zip(sums, choices, strict=True)]
        normalised += by_length.index(max(by_length)) == right
    assert found["normalised"]["correct"] == normalised
    (items,) = ann.folder.glob("evaluations/*/items/*.jsonl")
    first = json.loads(items.read_text().splitlines()[0])
    assert first["context"] == f"Question: {CHOICES[0][0]}\nAnswer:"
    assert first["continuations"] == [f" {choice}" for choice in CHOICES[0][1]]

    pairs = [
        {"goal": question, "sol1": choices[0], "sol2": choices[1], "label": right}
        for question, choices, right in CHOICES
    ]
    (ann.folder / "piqa.jsonl").write_text("".join(f"{json.dumps(pair)}\n" for pair in pairs))
    same = ann.types(*command, "--task", "piqa", "--data", "piqa.jsonl", "--parallel", "2")
    (again,) = json.loads(same.stdout)["points"]
    for figure in ("questions", "correct", "accuracy", "normalised"):
        assert again[figure] == found[figure]


def test_two_models_are_asked_graded_and_compared(ann: Person) -> None:
    models = ("--model", f"{MODEL},word-problems:Q2_K")
    command = words(*models, "--budget", "20", "--json", limit=2)
    shown = json.loads(ann.types(*command).stdout)
    found = [(point["model"], point["questions"]) for point in shown["points"]]
    assert found == [("word-problems-Q8_0.gguf", 2), ("word-problems-Q2_K.gguf", 2)]
    traded = json.loads(ann.types("tradeoff", "latest", "--deadline", "0.1", "--json").stdout)
    assert [each["a"]["name"] for each in traded] == ["word-problems-Q8_0"]
    assert len(traded[0]["a"]["questions"]) == 2

    again = ann.types("eval", "--regrade", "latest", "--grader", "boxed,number")
    assert "boxed and number disagree on" in again.stdout


@pytest.mark.exhaustive(covers=[*COVERED, "armload/analysis/tradeoff.py", "armload/report"])
def test_a_larger_budget_gives_more_correct_answers_and_models_differ(ann: Person) -> None:
    models = f"{MODEL},word-problems:Q2_K"
    budgets = ("--budget", "20,160")
    shown = json.loads(ann.types(*words("--model", models, *budgets, "--json")).stdout)
    found = [(point["model"], point["budget"], point["questions"]) for point in shown["points"]]
    assert found == [
        ("word-problems-Q8_0.gguf", 20, QUESTIONS),
        ("word-problems-Q8_0.gguf", 160, QUESTIONS),
        ("word-problems-Q2_K.gguf", 20, QUESTIONS),
        ("word-problems-Q2_K.gguf", 160, QUESTIONS),
    ]
    short, whole, *_ = shown["points"]
    assert whole["correct"] > short["correct"]
    assert whole["mean_tokens"] > short["mean_tokens"]
    (page,) = ann.folder.glob("evaluations/*/report.html")
    assert "correct: word-problems-Q8_0, wrong: word-problems-Q2_K" in page.read_text()


@pytest.mark.machine
@pytest.mark.exhaustive(covers=[*COVERED, "armload/cli/verbs/evaluation.py"])
def test_without_options_two_quantisations_are_evaluated_on_a_virtual_board(ann: Person) -> None:
    try:
        shown = json.loads(ann.types("eval", "--json").stdout)
        traded = json.loads(ann.types("tradeoff", "latest", "--json").stdout)
    finally:
        ann.types("board.down", "--board", "virtual", "--yes")
    # How many were answered within the time depends on the machine.
    largest = {point["model"]: point for point in shown["points"]}
    assert list(largest) == ["word-problems-Q8_0.gguf", "word-problems-Q2_K.gguf"]
    for point in largest.values():
        interval = point["accuracy"]["interval"]
        assert interval["low"] <= point["correct"] / point["questions"] <= interval["high"]
    assert len(traded) == 1
    page = (ann.folder / "evaluations" / shown["evaluation"] / "report.html").read_text()
    assert "Accuracy against time" in page


@pytest.mark.exhaustive(covers=["armload/evaluation", "armload/runs"])
def test_a_told_budget_is_stated_and_a_conclusion_answers(ann: Person) -> None:
    options = ("--model", MODEL, "--budget", "20", "--limit", "3")
    task = ann.folder / "sums.yaml"
    task.write_text(
        'data: sums.jsonl\nfields: {question: q, answer: a}\nexpected: "{{ answer }}"\n'
        'prompts:\n  plain:\n    user: "{{ question }}"\n'
        '    budget_sentence: "Use {{ budget }} tokens."\n'
        'conclude: {text: " \\\\boxed{", tokens: 6}\ngrader: boxed\n'
    )
    (ann.folder / "sums.jsonl").write_text('{"q": "Ann has 3 apples. How many?", "a": "3"}\n')
    command = ("eval", "--board", "here", "--task", str(task), *options, "--json")
    concluded = json.loads(ann.types(*command, "--tell-budget", "both", "--conclude").stdout)
    assert concluded["points"]
    assert all(point["boxed_share"] == 1 for point in concluded["points"])
    items = [
        json.loads(line)
        for path in ann.folder.glob("evaluations/*/items/*.jsonl")
        for line in path.read_text().splitlines()
    ]
    told = ["Use 20 tokens." in item["messages"][0]["content"] for item in items]
    assert sorted(told) == [False, True]


@pytest.mark.exhaustive(covers=["armload/evaluation", "armload/runs"])
def test_a_model_without_a_usable_chat_template_can_be_asked_without_it(ann: Person) -> None:
    stories = shared("stories260K.gguf")
    broken = with_chat_template(stories, ann.folder / "broken.gguf", "{% for message in %}")
    options = ("--budget", "4", "--json")
    command = words("--model", str(stories), *options, limit=2)
    refused = json.loads(ann.types(*command, status=2).stdout)
    assert "the model has no chat template" in refused["error"]["message"]
    failed = json.loads(
        ann.types(*words("--model", str(broken), *options, limit=2), status=9).stdout
    )
    assert "the model's chat template is invalid" in failed["error"]["message"]
    shown = ann.types("show", "latest-eval").stdout
    assert "the model's chat template is invalid" in " ".join(shown.split())
    plain = json.loads(ann.types(*command, "--template", "none").stdout)["points"][0]
    assert plain["questions"] == 2


@pytest.mark.exhaustive(covers=[*COVERED, "armload/fleet"])
def test_boards_share_the_questions(ann: Person) -> None:
    ann.types(*words("--model", MODEL, board="here,there"))
    ids = Counter(answer["id"] for answer in answers(ann))
    assert len(ids) == QUESTIONS
    assert set(ids.values()) == {1}
    boards = [json.loads(path.read_text())["board"]["name"] for path in ann.runs.glob("*/run.json")]
    assert sorted(boards) == ["here", "there"]


@pytest.mark.parametrize(
    "kills",
    [
        1,
        pytest.param(20, marks=[pytest.mark.exhaustive(covers=COVERED), pytest.mark.timeout(3600)]),
    ],
)
@pytest.mark.exhaustive(covers=["armload/evaluation", "armload/runs"])
def test_nothing_is_lost_or_asked_twice_however_often_the_command_is_killed(
    ann: Person, kills: int
) -> None:
    # Else the kills would strike while the engine is built and the board started.
    for _ in range(2):
        start = time.monotonic()
        ann.types(*words("--model", MODEL, "--budget", "20", "--new", limit=1))
        one_s = time.monotonic() - start
    known, ran = set(ann.folder.glob("evaluations/*")), set(ann.runs.glob("*/stdout"))
    limit = 15 * kills
    command = words("--model", MODEL, "--budget", "20,48", "--json", limit=limit)
    chance = random.Random(kills)
    for _ in range(kills):
        process = ann.start(*command)
        time.sleep(chance.uniform(0.2, 1.5) * one_s)
        assert process.poll() is None, "it was done before it could be killed"
        process.kill()
        process.communicate()
    shown = json.loads(ann.types(*command).stdout)
    assert [point["questions"] for point in shown["points"]] == [limit, limit]
    (folder,) = {path.parent for path in ann.folder.glob("evaluations/*/answers-*.jsonl")} - known
    assert shown["evaluation"] == folder.name
    kept = Counter(answer["id"] for answer in answers(ann, folder.name))
    asked = Counter(
        json.loads(line)["id"]
        for path in set(ann.runs.glob("*/stdout")) - ran
        for line in path.read_text().splitlines()
    )
    for ids in (kept, asked):
        assert len(ids) == limit
        assert set(ids.values()) == {1}


@pytest.mark.exhaustive(covers=["armload/evaluation", "armload/runs"])
def test_a_context_that_was_too_small_can_be_corrected(ann: Person) -> None:
    command = words("--model", MODEL, "--budget", "20", "--json", limit=2)
    failed = json.loads(ann.types(*command, "--context", "16", status=9).stdout)
    assert "No question was answered" in failed["error"]["message"]
    assert json.loads(ann.types(*command).stdout)["points"][0]["questions"] == 2


@pytest.mark.exhaustive(covers=["armload/evaluation", "armload/runs"])
def test_time_that_is_up_leaves_a_result_that_grows_when_it_is_repeated(ann: Person) -> None:
    command = words("--model", MODEL, "--max-time", "1", "--json", limit=600)
    done = ann.types(*command)
    first = json.loads(done.stdout)["points"][0]["questions"]
    assert f"{600 - first} of 600 questions were not asked." in done.stderr
    assert 0 < first < 600
    second = json.loads(ann.types(*command).stdout)["points"][0]["questions"]
    assert first < second < 600


@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        (("--task", "gsm8k"), 2, "Give its data file with --data FILE"),
        (("--task", "logits"), 2, "needs prompts"),
        (("--reference", "x"), 2, "--reference needs --task logits"),
        (("--task", "nothing"), 2, "no .* named 'nothing'"),
        (("--budget", "few"), 2, "--budget: must be a whole number"),
        (("--weights", "wrong"), 2, "mapped"),
        (("--resident", "lots"), 2, "not a size"),
        (("--parallel", "99"), 2, "must be 32 or less"),
        (("--threads", "0"), 2, "threads"),
        (("--grader", "fair"), 2, "no grader 'fair'"),
        (("--tell-budget", "maybe"), 2, "must be 'no', 'yes' or 'both'"),
        (("--flash-attention", "some"), 2, "flash_attention|flash-attention"),
        (("--template", "alpaca"), 2, "must be 'model', 'chatml' or 'none'"),
        (("--model", "word-problems:Q9_9"), 2, "Q9_9"),
    ],
)
def test_a_mistake_is_answered_with_what_to_do(
    ann: Person, options: tuple[str, ...], status: int, message: str
) -> None:
    done = ann.types("eval", "--board", "here", *options, status=status)
    assert re.search(message, done.stdout + done.stderr), done.stdout + done.stderr
