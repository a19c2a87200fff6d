"""Generated word problems: reproducible, right, and of two splits that share no problem."""

from __future__ import annotations

import operator
import re
from collections import Counter

import pytest

from armload.evaluation.task import load_task
from armload.evaluation.word_problems import LARGEST_NUMBER, TELL_BUDGET, Split, problems

MANY = 1_500
SPLITS: tuple[Split, Split] = ("train", "test")


def test_equal_arguments_give_equal_problems() -> None:
    assert problems("train", 50, seed=3) == problems("train", 50, seed=3)
    assert problems("train", 50, seed=3) != problems("train", 50, seed=4)
    assert problems("test", 200, seed=3)[:50] == problems("test", 50, seed=3)


def test_no_problem_of_the_test_split_occurs_in_training_in_any_words() -> None:
    trained, tested = (
        {tuple(step.equation for step in each.steps) for each in problems(split, MANY, seed=1)}
        for split in SPLITS
    )
    assert not trained & tested


def test_the_test_split_repeats_no_question() -> None:
    assert len({each.question for each in problems("test", MANY, seed=1)}) == MANY


@pytest.mark.parametrize("split", SPLITS)
def test_every_answer_is_what_its_equations_give(split: Split) -> None:
    operations = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.floordiv}
    for problem in problems(split, MANY, seed=2):
        equations = re.findall(r"(\d+)([-+*/])(\d+)=(\d+)", problem.reasoning)
        assert len(equations) == len(problem.steps)
        before = None
        for left, sign, right, result in equations:
            assert before in (None, left)
            assert operations[sign](int(left), int(right)) == int(result)
            assert sign != "/" or int(left) % int(right) == 0
            assert 0 < int(result) <= LARGEST_NUMBER
            before = result
        assert rf"\boxed{{{before}}}" in problem.solution
        assert int(before or 0) == problem.answer
        assert problem.equations_only.count("=") == len(equations)


def test_the_question_states_all_numbers_that_the_solution_uses() -> None:
    for problem in problems("test", MANY, seed=5):
        asked = Counter(map(int, re.findall(r"\d+", problem.question)))
        used = Counter(step.right for step in problem.steps)
        used[problem.steps[0].left] += 1
        assert asked == used


def test_one_to_four_steps_are_equally_frequent_and_longer_ones_need_longer_texts() -> None:
    found = problems("test", MANY, seed=1)
    counts = Counter(len(each.steps) for each in found)
    assert sorted(counts) == [1, 2, 3, 4]
    assert min(counts.values()) > 0.8 * MANY / 4
    for fewer in (1, 2, 3):
        shorter = [len(each.solution) for each in found if len(each.steps) == fewer]
        longer = [len(each.solution) for each in found if len(each.steps) == fewer + 1]
        assert sum(shorter) / len(shorter) < sum(longer) / len(longer)


def test_the_task_tells_the_budget_in_the_words_that_the_model_has_learned() -> None:
    sentence = load_task("word-problems").prompts["steps"].budget_sentence
    assert sentence.replace("{{ budget }}", "{budget}") == TELL_BUDGET
