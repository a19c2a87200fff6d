"""``report`` of an evaluation: its page and pictures in a folder, as of runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from armload.core.errors import UsageError
from armload.evaluation.record import EvaluationFolder
from armload.report.evaluation.result import EvaluationResult
from tests.unit.evaluations import evaluated


def test_an_evaluation_without_answers_has_no_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = evaluated()
    later = made.evaluation.model_copy(update={"id": f"{made.evaluation.id}-later"})
    with pytest.raises(UsageError, match="has no answers"):
        EvaluationResult.of(EvaluationFolder.begin_with(later, made.questions)).page(tmp_path)
