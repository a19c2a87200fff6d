"""Two models at equal latency, from kept answers; and the page that shows them."""

from __future__ import annotations

from pathlib import Path

import pytest

from armload.core.errors import UsageError
from armload.evaluation.record import load_evaluation
from armload.evaluation.results import points_of
from armload.evaluation.sides import check_times, find_sides, trade
from armload.report.evaluation.page import write_page
from armload.report.evaluation.series import standing_of
from armload.report.evaluation.tradeoff_page import write_tradeoff_page
from tests.unit.evaluations import BUDGETS, QUESTIONS, answer, evaluated
from tests.unit.runs import quick_run


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of its own."""
    monkeypatch.chdir(tmp_path)


def test_the_times_of_two_models_in_one_evaluation_are_their_answers() -> None:
    evaluated(fails=False)
    (found,) = trade(*find_sides("latest", ""), deadlines_s=[0.7])
    assert found.a.name == "a"
    assert found.a.budgets == BUDGETS
    assert found.a.latency_s[0] == pytest.approx((0.4, 1.0))
    assert found.b.latency_s[0] == pytest.approx((0.2, 0.5))
    (at,) = found.deadlines
    assert (at.a.correct, at.b.correct) == (0, 2)
    assert found.axis is not None
    assert found.axis.ratio == pytest.approx(2.0)


def test_two_models_at_equal_latency_have_a_page() -> None:
    evaluated(fails=False)
    sides = find_sides("latest", "")
    found = trade(*sides, deadlines_s=[0.7])
    page = write_tradeoff_page(sides, found)
    assert page.name == "tradeoff-sums-a-b.html"
    text = page.read_text()
    for words in (found[0].crossover.statement, "exact McNemar test", "By one ratio of speeds"):
        assert words in text
    assert "<h1>sums: a or b</h1>" in text


def test_one_of_several_models_is_named() -> None:
    evaluated(fails=False)
    a, b = find_sides("latest:b", "latest:a")
    assert (a.model, b.model) == ("b.gguf", "a.gguf")
    with pytest.raises(UsageError, match=r"has the models a\.gguf, b\.gguf"):
        find_sides("latest:c", "latest:a")


def test_different_questions_are_not_compared() -> None:
    evaluated()
    with pytest.raises(UsageError, match="did not answer the same questions"):
        trade(*find_sides("latest", ""))


def test_questions_of_one_number_must_be_the_same_question() -> None:
    first = evaluated(fails=False).evaluation.id
    last = QUESTIONS[-1].model_copy(update={"fields": {"question": "What is 5 + 3?"}})
    other = evaluated(fails=False, questions=(*QUESTIONS[:-1], last)).evaluation.id
    with pytest.raises(UsageError, match="asked different questions: number 4") as caught:
        find_sides(f"{first}:a", f"{other}:b")
    assert "--data" in caught.value.remedy
    same = evaluated(fails=False).evaluation.id
    assert trade(*find_sides(f"{first}:a", f"{same}:b"))


def test_times_of_another_model_are_refused() -> None:
    evaluated(fails=False)
    _, side = find_sides("latest", "")
    with pytest.raises(UsageError, match=r"not of b\.gguf"):
        check_times(side, [quick_run()])
    assert check_times(side, []) is None


def test_the_page_has_every_answer_and_says_who_is_right_alone() -> None:
    made = evaluated(fails=False)
    text = write_page(made, standing_of(points_of(made)), "boxed").read_text()
    for words in ("Accuracy against time", "Accuracy against tokens", "What is 3 + 3?"):
        assert words in text
    assert "<h1>sums: 4 questions, 2 models</h1>" in text
    assert "right: a, wrong: b (2)" in text
    assert "I do not know" in text


def test_a_page_names_questions_without_an_answer() -> None:
    made = evaluated()
    text = write_page(made, standing_of(points_of(made)), "boxed").read_text()
    assert "1 question without an answer, such as question 4: the prompt is too long." in text


def test_graders_are_compared_on_the_page() -> None:
    made = evaluated(fails=False)
    (made.folder / "answers-1.jsonl").unlink()
    made = load_evaluation(made.folder)
    made.add(1, [answer("1", "It is \\boxed{2}"), answer("2", "It is 4."), answer("3", "It is 5.")])
    text = write_page(made, standing_of(points_of(made)), "boxed").read_text()
    assert "graders disagree (1)" in text
    assert "boxed: wrong (nothing found), qwen: right (4), number: right (4)" in text
    assert "<tr><td>number</td><td>4/4</td><td>0</td><td>2/3</td><td>1</td></tr>" in text
