"""Graders: the table in the documentation, and reference solutions whole and cut short."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from armload.core.errors import UsageError
from armload.engines.answers import ThoughtTags
from armload.evaluation.data import load_questions
from armload.evaluation.grading.registry import grade
from armload.evaluation.question import Question
from armload.evaluation.task import load_task
from tests.outside_data import GSM8K, needs

needs_gsm8k = needs(GSM8K)
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
    ("share", "by_the_rules", "exactly"), [(0.5, 29, 27), (0.75, 95, 93), (0.9, 388, 389)]
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


CHOICES = re.findall(r"^\| `([^`]*)` \| ([A-D]|none) \|", PAGE.read_text(), re.MULTILINE)


def test_the_documented_choices_are_read_whole() -> None:
    assert len(CHOICES) > 20
    assert {letter for _, letter in CHOICES} == {"A", "B", "C", "none"}


@pytest.mark.parametrize(
    ("answer", "letter"),
    [
        *CHOICES,
        (r"\boxed{B}", "B"),
        (r"\boxed{\textbf{(D)}\ 7}", "D"),
        (r"The answer is \(\text{B}\)", "B"),
        ("The answer is (B), not A.", "B"),
        ("The answer is B and C is wrong.", "B"),
        ("The best answer is B, since A and C are wrong.", "B"),
        ("A dog has four legs, so B", "B"),
        ("I think that B is right. A cat has none.", "B"),
        ("Among A, B and C, only B works", "B"),
        ("A is wrong, C is too large. B fits.", "B"),
        ("B is not correct. D is.", "D"),
        ("B isn't right, so A.", "A"),
        ("**B**", "B"),
        ("B) a dog", "B"),
        ("b)", "B"),
        ("### Answer\n\nB", "B"),
        ("A) a dog\nB) a cat\n\nThe answer is B", "B"),
        ("A) a dog\nB) a cat\nB", "B"),
        ("A. Because B is smaller.", "A"),
        ("I would choose option (d).", "D"),
        ("\u7b54\u6848\u662fB", "B"),
        ("Vitamin C is needed, so the answer is A", "A"),
        ("It is either A or C.", "none"),
        ("A is incorrect.", "none"),
        ("As an AI I can't say", "none"),
        ("", "none"),
    ],
)
def test_a_choice_is_the_letter_that_the_answer_commits_to(answer: str, letter: str) -> None:
    found = grade("choice", answer, question("B"))
    assert (found.extracted or "none", found.correct) == (letter, letter == "B")


@pytest.mark.parametrize(
    ("answer", "expected", "correct"),
    [
        ("it is \u22125", "-5", True),
        ("it is \u22125", "5", False),
        ("3\u20135", "5", True),
        ("1\u00a0000", "1000", True),
        ("1\u202f234\u202f567", "1234567", True),
        ("\u0661\u0668", "18", True),
        ("2", "1/2", False),
        ("3/2", "1/2", False),
        ("0.5", "1/2", True),
        ("1\u00bd", "1.5", True),
        ("2\u20443", "2/3", True),
        (r"-\frac{1}{2}", "-0.5", True),
        ("-$5", "-5", True),
        ("1.8e3", "1800", True),
        ("1/0", "1", False),
        ("9" * 6000, "9" * 6000, True),
        ("9" * 6000, "9" * 5999, False),
    ],
)
def test_a_number_is_read_as_it_was_meant(answer: str, expected: str, *, correct: bool) -> None:
    assert grade("number", answer, question(expected)).correct is correct


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


HARMONY = ThoughtTags(
    begin="<|channel|>analysis<|message|>", end="<|end|>", answer="<|channel|>final<|message|>"
)


@pytest.mark.parametrize(
    ("tags", "text", "answer"),
    [
        (ThoughtTags(begin="[THINK]", end="[/THINK]"), "[THINK]17[/THINK]18", "18"),
        (ThoughtTags(begin="[THINK]", end="[/THINK]"), "[THINK]17", ""),
        (ThoughtTags(begin="<seed:think>", end="</seed:think>"), "17</seed:think>18", "18"),
        (HARMONY, "<|channel|>analysis<|message|>17", ""),
        (
            HARMONY,
            "<|channel|>analysis<|message|>17<|end|><|start|>assistant<|channel|>final<|message|>18",
            "18",
        ),
        (HARMONY, "<|channel|>final<|message|>18", "18"),
        (HARMONY, "18", "18"),
    ],
)
def test_thoughts_are_what_the_chat_templates_tags_enclose(
    tags: ThoughtTags, text: str, answer: str
) -> None:
    found = grade("exact", text, question("18"), tags)
    assert (found.extracted or "", found.correct) == (answer, answer == "18")


def test_an_unknown_grader_is_answered_with_those_that_exist() -> None:
    with pytest.raises(UsageError, match="no grader 'qwenn'") as caught:
        grade("qwenn", "18", question("18"))
    assert "qwen, boxed, number" in caught.value.remedy
