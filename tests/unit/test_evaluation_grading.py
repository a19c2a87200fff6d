"""Graders: the table in the documentation, and reference solutions whole and cut short."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from armload.core.errors import UsageError
from armload.evaluation.data import load_questions
from armload.evaluation.grading.every import grade
from armload.evaluation.question import Question
from armload.evaluation.task import load_task

GSM8K = Path(__file__).resolve().parents[3] / "shared" / "data" / "gsm8k_test.jsonl"
needs_gsm8k = pytest.mark.skipif(not GSM8K.is_file(), reason=f"{GSM8K.name} is not there")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "grading.md"
CELL = re.compile(
    r"\| `([^`]*)` \| `([^`]*)` \| (right|wrong) \| (right|wrong) \| (right|wrong) \|"
)


def question(expected: str, *, choices: tuple[str, ...] = ()) -> Question:
    return Question(id="1", fields={}, expected=expected, choices=choices)


def documented() -> list[tuple[str, str, str, str]]:
    rows = CELL.findall(PAGE.read_text())
    return [
        (grader, answer, expected, verdict)
        for answer, expected, *verdicts in rows
        for grader, verdict in zip(("qwen", "boxed", "number"), verdicts, strict=True)
    ]


def test_the_documented_table_is_read_whole() -> None:
    rows = [
        line
        for line in PAGE.read_text().splitlines()
        if re.match(r"\| `.*\| (right|wrong) \|", line)
    ]
    assert len(documented()) == 3 * len(rows) > 100


@pytest.mark.parametrize(("grader", "answer", "expected", "verdict"), documented())
def test_graders_do_what_the_documented_table_says(
    grader: str, answer: str, expected: str, verdict: str
) -> None:
    assert grade(grader, answer, question(expected)).correct == (verdict == "right")


@needs_gsm8k
@pytest.mark.parametrize("grader", ["qwen", "boxed", "number"])
def test_every_reference_solution_in_a_box_is_right(grader: str) -> None:
    questions = load_questions(load_task("gsm8k"), str(GSM8K))
    assert len(questions) == 1319
    for each in questions:
        solution = each.fields["answer"].replace("#### ", "The answer is \\boxed{") + "}."
        found = grade(grader, solution, each)
        assert found.correct, solution
        assert found.boxed


@needs_gsm8k
@pytest.mark.parametrize(
    ("share", "by_the_rules", "exactly"), [(0.5, 29, 27), (0.75, 95, 91), (0.9, 388, 382)]
)
def test_a_solution_cut_short_is_right_by_luck_as_often_as_documented(
    share: float, by_the_rules: int, exactly: int
) -> None:
    right = {"qwen": 0, "number": 0, "boxed": 0}
    for each in load_questions(load_task("gsm8k"), str(GSM8K)):
        reasoning = re.sub("<<.*?>>", "", each.fields["answer"].partition("####")[0].strip())
        for grader in right:
            cut = reasoning[: int(len(reasoning) * share)]
            right[grader] += grade(grader, cut, each).correct
    assert right == {"qwen": by_the_rules, "number": exactly, "boxed": 0}


@pytest.mark.parametrize(
    ("answer", "letter"),
    [
        (r"\boxed{B}", "B"),
        (r"A would do, but \boxed{\text{B}}.", "B"),
        ("The answer is (B), not A.", "B"),
        ("Answer: B", "B"),
        ("A dog has four legs, so B", "B"),
        ("I think that B is right. A cat has none.", "B"),
        ("**B**", "B"),
        ("B) a dog", "B"),
        ("The answer is a dog.", None),
        ("", None),
    ],
)
def test_a_choice_is_the_letter_that_the_answer_commits_to(answer: str, letter: str | None) -> None:
    found = grade("choice", answer, question("B"))
    assert (found.extracted, found.correct) == (letter, letter == "B")


def test_only_letters_of_existing_choices_count() -> None:
    asked = question("B", choices=("a dog", "a cat"))
    assert grade("choice", "B, says plan C", asked).extracted == "B"


def test_exact_compares_the_whole_answer() -> None:
    assert grade("exact", " Paris\n", question("Paris")).correct
    assert not grade("exact", "It is Paris", question("Paris")).correct


def test_thoughts_are_not_graded_even_if_the_prompt_opened_them() -> None:
    assert not grade("boxed", r"<think>\boxed{18}</think> I give up", question("18")).boxed
    assert grade("boxed", r"hm \boxed{17}</think>\boxed{18}", question("18")).correct
    assert grade("qwen", "<think>9", question("9")).extracted is None


def test_an_unknown_grader_is_answered_with_those_that_exist() -> None:
    with pytest.raises(UsageError, match="no grader 'qwenn'") as caught:
        grade("qwenn", "18", question("18"))
    assert "qwen, boxed, number" in caught.value.remedy
