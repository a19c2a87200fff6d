"""Kept answers are graded again, without a board."""

from __future__ import annotations

from pathlib import Path

import pytest

from armload.cli.present_evaluation import regrade_and_present
from armload.core.errors import UsageError
from armload.evaluation.record import begin, load_evaluation
from tests.unit.evaluations import QUESTIONS, evaluated


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of its own."""
    monkeypatch.chdir(tmp_path)


def test_one_grader_becomes_the_evaluations_own(capsys: pytest.CaptureFixture[str]) -> None:
    made = evaluated()
    regrade_and_present("latest", (), as_json=True)
    regrade_and_present("latest", ("number", "qwen"), as_json=True)
    assert load_evaluation(made.folder).evaluation.grader == "boxed"
    regrade_and_present("latest", ("number",), as_json=True)
    assert load_evaluation(made.folder).evaluation.grader == "number"
    capsys.readouterr()


def test_an_unknown_grader_is_refused_also_where_there_is_nothing_to_grade() -> None:
    made = evaluated()
    for file in made.folder.glob("answers-*"):
        file.unlink()
    with pytest.raises(UsageError, match="no grader 'nonsense'"):
        regrade_and_present("latest", ("nonsense",), as_json=True)


def test_choices_are_not_regraded() -> None:
    kind = {"kind": "multiple-choice", "parts": ()}
    begin(evaluated().evaluation.model_copy(update=kind), QUESTIONS)
    with pytest.raises(UsageError, match="compares choices"):
        regrade_and_present("latest", ("nonsense",), as_json=True)
