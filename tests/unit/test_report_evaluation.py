"""``report`` of an evaluation: its page and pictures in a folder, as of runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from armload.core.errors import UsageError
from armload.evaluation.question import QuestionImage
from armload.evaluation.record import EvaluationFolder
from armload.evaluation.results import points_of
from armload.report.evaluation.answers import answer_rows
from armload.report.evaluation.result import EvaluationResult
from armload.report.evaluation.series import series_of
from tests.unit.evaluations import QUESTIONS, evaluated


def test_an_evaluation_without_answers_has_no_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = evaluated()
    later = made.evaluation.model_copy(update={"id": f"{made.evaluation.id}-later"})
    with pytest.raises(UsageError, match="has no answers"):
        EvaluationResult.of(EvaluationFolder.begin_with(later, made.questions)).page(tmp_path)


def test_the_page_names_the_images_of_a_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    image = QuestionImage(file="red.png", sha256="ab" * 32, width=8, height=8)
    asked = [each.model_copy(update={"images": (image,)}) for each in QUESTIONS]
    found = evaluated(questions=asked)
    rows = answer_rows(found, series_of(points_of(found)), found.evaluation.grader)
    assert rows[0].text == "red.png: What is 1 + 1?"
