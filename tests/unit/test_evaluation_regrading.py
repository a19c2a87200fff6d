"""Kept answers are graded again, without a board."""

from __future__ import annotations

from pathlib import Path

import pytest

from armload.cli.evaluation_options import EvalOptions, check_combination
from armload.core.errors import UsageError
from armload.evaluation.record import EvaluationFolder
from armload.report.evaluation.result import regraded
from tests.unit.evaluations import QUESTIONS, answer, evaluated


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of its own."""
    monkeypatch.chdir(tmp_path)


def test_one_grader_becomes_the_evaluations_own() -> None:
    made = evaluated()
    regraded("latest", ())
    regraded("latest", ("number", "qwen"))
    assert EvaluationFolder.read(made.folder).evaluation.grader == "boxed"
    regraded("latest", ("number",))
    assert EvaluationFolder.read(made.folder).evaluation.grader == "number"


def test_an_answer_on_which_graders_disagree_is_listed_once_with_who_gave_it_to_what() -> None:
    made = evaluated(fails=False)
    (made.folder / "answers-1.jsonl").unlink()
    # What it says does not change between the budgets of 4 and 10 tokens.
    texts = [r"It is \boxed{2}", "4", r"\boxed{5}"]
    short = [answer(str(at), text, tokens=3) for at, text in enumerate(texts, start=1)]
    EvaluationFolder.read(made.folder).add(1, short)
    result = regraded("latest", ("qwen", "boxed"))
    head, line = [*result.view()][-2:]
    assert head == "qwen and boxed disagree on 1 answer."
    assert line == (
        "question 2 to b, prompt steps, not told the budget, budget 4, 10, expected 4: qwen: "
        "correct (4); boxed: wrong (nothing found): …4"
    )
    (listed,) = result.document().disagreements
    assert (listed.model, listed.budgets) == ("b.gguf", (4, 10))
    assert (listed.a.correct, listed.b.correct) == (True, False)


def test_an_unknown_grader_is_refused_also_where_there_is_nothing_to_grade() -> None:
    made = evaluated()
    for file in made.folder.glob("answers-*"):
        file.unlink()
    with pytest.raises(UsageError, match="no grader 'nonsense'"):
        regraded("latest", ("nonsense",))


def test_choices_are_not_regraded() -> None:
    kind = {"kind": "multiple-choice", "parts": ()}
    EvaluationFolder.begin_with(evaluated().evaluation.model_copy(update=kind), QUESTIONS)
    with pytest.raises(UsageError, match="is multiple choice"):
        check_combination(EvalOptions.typed({"regrade": "latest", "grader": "boxed"}))
    usual = EvalOptions.typed({"regrade": "latest", "grader": "boxed"}, usual=("grader",))
    assert check_combination(usual).grader == ()
