"""Accuracy at equal latency: curves, the crossover or that there is none, tests at a deadline."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from pydantic import ValidationError

from armload.analysis.tradeoff import (
    Answers,
    at_deadline,
    by_budget,
    by_deadline,
    crossover,
    deadlines_of,
    on_one_axis,
    require_same_questions,
)
from armload.core.errors import UsageError


def system(
    name: str, latency_s: Sequence[float], right: Sequence[int], questions: int = 100
) -> Answers:
    """Make a system that gets the first so many questions right at each budget."""
    return Answers(
        name=name,
        questions=tuple(str(number) for number in range(questions)),
        budgets=tuple(range(10, 10 * len(latency_s) + 10, 10)),
        latency_s=(tuple(latency_s),) * questions,
        correct=tuple(tuple(number < count for count in right) for number in range(questions)),
    )


Q2 = system("Q2_K", [10, 20], [40, 42])
Q8 = system("Q8_0", [27.3, 54.6], [20, 70])


def test_a_deadline_counts_what_is_finished_by_then() -> None:
    points = by_deadline(Q8, [27.2, 27.3, 54.5, 54.6, 1000])
    assert [point.accuracy.correct for point in points] == [0, 20, 20, 70, 70]
    assert {point.accuracy.questions for point in points} == {100}


def test_questions_that_take_longer_are_finished_later() -> None:
    one = system("one", [1, 2], [1, 2], questions=2)
    uneven = one.model_copy(update={"latency_s": ((1.0, 2.0), (5.0, 6.0))})
    points = by_deadline(uneven, [1, 4.9, 5, 6])
    assert [point.accuracy.correct for point in points] == [1, 1, 1, 2]


def test_accuracy_against_tokens_has_the_mean_latency() -> None:
    first, second = by_budget(Q2)
    assert (first.budget, first.mean_latency_s, first.accuracy.correct) == (10, 10, 40)
    assert (second.budget, second.mean_latency_s, second.accuracy.correct) == (20, 20, 42)


def test_deadlines_are_those_at_which_something_changes() -> None:
    assert deadlines_of(Q2, Q8) == (10, 20, 27.3, 54.6)
    many = system("many", list(range(1, 2001)), [0] * 2000, questions=2)
    thinned = deadlines_of(many)
    assert (len(thinned), thinned[0], thinned[-1]) == (512, 1, 2000)


def test_a_crossover_is_found_where_the_slower_system_overtakes() -> None:
    found = crossover(Q2, Q8)
    assert found == crossover(Q8, Q2)
    assert (found.before, found.after, found.deadline_s) == ("Q2_K", "Q8_0", 54.6)
    assert found.interval is not None
    assert (found.interval.low, found.interval.high) == (54.6, 54.6)
    assert found.is_shown
    assert found.finding == "shown"
    assert found.sentence == (
        "Q2_K is more accurate up to 54.6 s, Q8_0 from then on (95% CI 54.6\u201354.6 s)."
    )


def test_a_short_setback_is_no_crossover() -> None:
    slower = system("slower", [10, 11, 20], [0, 41, 30])
    assert crossover(Q2, slower).deadline_s is None


def test_no_crossover_is_said_when_one_system_is_never_behind() -> None:
    worse = system("Q8_0", [27.3, 54.6], [20, 42])
    found = crossover(worse, Q2)
    assert (found.before, found.after, found.deadline_s) == ("Q2_K", "Q2_K", None)
    assert found.sentence == (
        "No crossover: averaged up to any deadline, Q2_K answers at least as many questions "
        "correctly."
    )


def test_too_few_questions_show_neither_a_crossover_nor_that_there_is_none() -> None:
    for right in ([True, False], [True, True]):
        fast, slow = (
            Q2.model_copy(
                update={
                    "name": name,
                    "questions": Q2.questions[:1],
                    "latency_s": (latency_s,),
                    "correct": ((correct,) * len(latency_s),),
                }
            )
            for name, latency_s, correct in zip(
                ("fast", "slow"), ((1.0, 2.0), (3.0, 4.0)), right, strict=True
            )
        )
        found = crossover(fast, slow)
        assert not found.is_shown
        assert found.sentence == "1 question: too few to tell whether there is a crossover."


def test_where_resamples_show_a_crossover_the_answers_do_not_rule_one_out() -> None:
    rows = tuple((number < 20, 4 <= number < 42 or number > 96) for number in range(100))
    found = crossover(Q8.model_copy(update={"correct": rows}), Q2)
    assert found.deadline_s is None
    assert found.share > 0.05
    assert f"it occurs in {found.share:.0%} of bootstrap resamples" in found.sentence


def test_a_lead_of_one_question_is_no_crossover_beyond_chance() -> None:
    latecomer = system("Q8_0", [27.3, 54.6], [20, 41])
    rows = tuple(
        (first, second if number != 99 else True)
        for number, (first, second) in enumerate(latecomer.correct)
    )
    rows = tuple((first, second or number == 98) for number, (first, second) in enumerate(rows))
    lucky = latecomer.model_copy(update={"correct": rows})
    found = crossover(Q2, lucky)
    assert found.deadline_s == 54.6
    assert 0.5 < found.share < 0.9
    assert "No significant crossover: Q8_0 overtakes Q2_K at 54.6 s" in found.sentence


def test_small_changes_of_sign_are_not_the_crossover() -> None:
    fast = system("fast", [1, 2, 3, 4], [2, 0, 40, 40])
    slow = system("slow", [1, 2, 3, 20], [1, 1, 1, 70])
    assert crossover(fast, slow).deadline_s == 20


def test_the_interval_holds_the_true_crossover() -> None:
    # The faster system solves half of the questions within 100 s, the slower 0.9 of them within
    # 250 s, both evenly: 0.9 / 250 t reaches 0.5 at 139 s, and the next budget is at 140 s.
    generator = np.random.default_rng(1)
    held = []
    for _ in range(60):
        systems = []
        for name, longest_s, share in (("fast", 100, 0.5), ("slow", 250, 0.9)):
            solved_s = generator.uniform(0, longest_s, 150)
            solved_s[generator.random(150) > share] = np.inf
            ends = np.arange(5, longest_s + 1, 5)
            systems.append(
                Answers(
                    name=name,
                    questions=tuple(map(str, range(150))),
                    budgets=tuple(ends.tolist()),
                    latency_s=(tuple(ends.astype(float).tolist()),) * 150,
                    correct=tuple(map(tuple, (solved_s[:, None] <= ends).tolist())),
                )
            )
        found = crossover(*systems)
        assert found.before == "fast"
        assert found.interval is not None
        held.append(found.interval.low <= 140 <= found.interval.high)
    assert sum(held) >= 54


def test_two_systems_at_a_deadline() -> None:
    found = at_deadline(Q2, Q8, 30)
    assert (found.a.correct, found.b.correct) == (42, 20)
    assert (found.mcnemar.only_a, found.mcnemar.only_b) == (22, 0)
    assert found.mcnemar.p_value == 2 / 2**22
    assert found.difference.difference == pytest.approx(0.22)
    assert found.difference.interval.low > 0


def test_the_one_axis_multiplies_the_slower_systems_tokens() -> None:
    fast, slow = on_one_axis(Q2, Q8, 2.73)
    assert [point.tokens for point in fast] == [10, 20]
    assert [point.tokens for point in slow] == pytest.approx([27.3, 54.6])
    assert [point.accuracy.correct for point in slow] == [20, 70]


def test_different_questions_are_refused() -> None:
    fewer = system("Q8_0", [27.3, 54.6], [20, 70], questions=90)
    with pytest.raises(
        UsageError, match="10 were answered by Q2_K alone, 0 by Q8_0 alone"
    ) as caught:
        crossover(Q2, fewer)
    assert "--limit" in caught.value.remedy
    with pytest.raises(UsageError):
        at_deadline(Q2, fewer, 30)
    require_same_questions(Q2, Q8)


@pytest.mark.parametrize(
    "update", [{"budgets": (20, 10)}, {"budgets": (10,)}, {"correct": ()}, {"budgets": ()}]
)
def test_rows_that_do_not_fit_are_refused(update: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Answers.model_validate({**Q2.model_dump(), **update})
