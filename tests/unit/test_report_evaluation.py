"""``report`` of an evaluation: its page and pictures in a folder, as of runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from armload.core.errors import UsageError
from armload.evaluation.record import EvaluationFolder
from armload.report.evaluation.result import EvaluationResult
from tests.command_line import typed
from tests.documents import document_of
from tests.unit.evaluations import BUDGETS, evaluated


def test_an_evaluation_is_reported_as_runs_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = evaluated()
    done = typed(tmp_path, "report", "latest-eval", "--json", cache=tmp_path / "cache")
    assert done.returncode == 0, done.stderr
    document = document_of("report", done.stdout)
    page = Path(document["page"])
    assert page.parent.name == made.evaluation.id
    assert document["headline"] in page.read_text()
    assert len(document["table"]) == 2 * len(BUDGETS)
    assert {Path(figure["png"]).parent for figure in document["figures"]} == {page.parent}
    assert {"correct", "boxed"} <= document["table"][0].keys()
    names = [Path(figure["png"]).name for figure in document["figures"]]
    assert names == ["accuracy-seconds.png", "accuracy-tokens.png"]


def test_an_evaluation_without_answers_has_no_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = evaluated()
    later = made.evaluation.model_copy(update={"id": f"{made.evaluation.id}-later"})
    with pytest.raises(UsageError, match="has no answers"):
        EvaluationResult.of(EvaluationFolder.begin_with(later, made.questions)).page(tmp_path)
