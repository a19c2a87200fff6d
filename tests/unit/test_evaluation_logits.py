"""Logits against a reference: close or not, and by how much."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from armload.core.errors import DataError, DifferentError, RunError, UsageError
from armload.core.progress import Silent
from armload.engines.answers import FailedAnswer, LogitsAnswer
from armload.evaluation.logits import computing
from armload.evaluation.logits.agreement import Agreement, agreement
from armload.evaluation.logits.computing import read_prompts
from armload.evaluation.logits.rows import Logits, logits_of_files, logits_of_run
from armload.evaluation.preparing import EvaluationRequest
from armload.evaluation.scorer_run import ItemAnswers, note_earlier
from armload.evaluation.scorer_settings import ScorerSettings
from armload.report.evaluation.result import LogitsResult
from armload.runs.reach import CONNECTED
from armload.runs.request import Request
from tests.unit.samples import model

MATRIX = np.array([[0.0, 1.0, 2.0], [3.0, 0.0, -1.0]], dtype=np.float32)


def _saved(folder: Path, *matrices: np.ndarray) -> Path:
    folder.mkdir()
    for number, matrix in enumerate(matrices, start=1):
        np.save(folder / f"{number}.npy", matrix)
    return folder


def _run(folder: Path, *matrices: np.ndarray) -> Path:
    folder.mkdir()
    lines, offset_bytes = "", 0
    with (folder / "logits.f32").open("wb") as file:
        for number, matrix in enumerate(matrices, start=1):
            rows, columns = matrix.shape
            answer = LogitsAnswer(
                id=str(number),
                tokens=tuple(range(rows)),
                positions=tuple(range(rows)),
                offset_bytes=offset_bytes,
                rows=rows,
                columns=columns,
            )
            lines += answer.model_dump_json(exclude={"top"}) + "\n"
            offset_bytes += file.write(matrix.astype("<f4").tobytes())
    (folder / "stdout").write_text(lines)
    return folder


def _compared(tmp_path: Path, matrix: np.ndarray, reference: np.ndarray) -> Agreement:
    return agreement(
        logits_of_run(_run(tmp_path / "run", matrix)),
        logits_of_files(_saved(tmp_path / "reference", reference)),
    )


def test_equal_logits_agree(tmp_path: Path) -> None:
    found = _compared(tmp_path, MATRIX, MATRIX.astype(np.float64))
    assert (found.close, found.max_difference, found.top1_share) == (1, 0.0, 1.0)
    assert found.kl_mean == pytest.approx(0.0, abs=1e-12)


def test_a_constant_added_to_all_logits_is_a_difference_and_no_divergence(tmp_path: Path) -> None:
    found = _compared(tmp_path, MATRIX + 1, MATRIX)
    assert found.close == 0
    assert found.max_difference == pytest.approx(1.0)
    assert found.kl_p99 == pytest.approx(0.0, abs=1e-12)


def test_the_divergence_is_that_of_the_distributions(tmp_path: Path) -> None:
    other = MATRIX[:, ::-1].copy()
    found = _compared(tmp_path, other, MATRIX)
    p, q = (np.exp(each) / np.exp(each).sum(axis=1, keepdims=True) for each in (MATRIX, other))
    assert found.kl_mean == pytest.approx(float((p * np.log(p / q)).sum(axis=1).mean()), rel=1e-6)
    assert found.top1_share == 0.0


def test_the_tolerance_is_five_thousandths(tmp_path: Path) -> None:
    assert _compared(tmp_path, MATRIX + 0.0049, MATRIX).close == 1


@pytest.mark.parametrize(
    ("matrix", "words"),
    [(MATRIX[:1], "has 2 positions of 3 logits"), (MATRIX[:, :2], "2 of 2")],
)
def test_other_prompts_or_vocabularies_are_refused(
    tmp_path: Path, matrix: np.ndarray, words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        _compared(tmp_path, MATRIX, matrix)


def test_a_prompt_that_is_tokenized_otherwise_is_refused() -> None:
    sides = [
        Logits(name=name, rows={"1": MATRIX}, tokens={"1": tokens}, failed={})
        for name, tokens in (("a", (1, 2)), ("b", (1, 3)))
    ]
    with pytest.raises(UsageError, match="tokenize it differently"):
        agreement(*sides)


def test_damaged_files_are_named(tmp_path: Path) -> None:
    run = _run(tmp_path / "run", MATRIX)
    (run / "logits.f32").write_bytes(b"1234")
    with pytest.raises(DataError, match="shorter than its run states"):
        logits_of_run(run)
    folder = _saved(tmp_path / "reference", np.zeros(3))
    with pytest.raises(DataError, match=r"1\.npy: holds 1 dimensions"):
        logits_of_files(folder)
    (folder / "1.npy").write_bytes(b"no")
    with pytest.raises(DataError, match="not a NumPy file"):
        logits_of_files(folder)
    with pytest.raises(UsageError, match=r"no \.npy files"):
        logits_of_files(tmp_path)


def test_logits_of_a_run_are_also_those_of_the_runs_that_it_continues(tmp_path: Path) -> None:
    first = _run(tmp_path / "first", MATRIX, MATRIX + 1)
    last = _run(tmp_path / "last", MATRIX + 2)
    note_earlier(ItemAnswers(folders=(last, first), answers={}))
    found = logits_of_run(last)
    assert {name: float(rows[0, 0]) for name, rows in found.rows.items()} == {"1": 2.0, "2": 1.0}
    assert sorted(logits_of_run(first).rows) == ["1", "2"]


def test_a_run_in_which_every_prompt_failed_says_why(tmp_path: Path) -> None:
    why = "it has 300 tokens, but the context has only 256 (-c)"
    failed = FailedAnswer(id="1", kind="logits", error=why)
    (tmp_path / "stdout").write_text(failed.model_dump_json() + "\n")
    with pytest.raises(RunError, match=r"none of 1 prompt has logits\. Prompt 1: it has 300") as e:
        logits_of_run(tmp_path)
    assert "--context" in e.value.remedy
    (tmp_path / "stdout").write_text("")
    with pytest.raises(UsageError, match="has no logits"):
        logits_of_run(tmp_path)


def test_a_prompt_that_failed_on_both_sides_is_not_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "prompts.txt").write_text("short\nlong\n")
    run = _run(tmp_path / "run", MATRIX)
    failed = FailedAnswer(id="2", kind="logits", error="it has 300 tokens")
    with (run / "stdout").open("a") as file:
        file.write(failed.model_dump_json() + "\n")
    monkeypatch.setattr(computing, "compute_logits", lambda *_, reach: run)
    monkeypatch.setattr(computing, "model_called", lambda *_: model())
    asked = EvaluationRequest(
        boards=("here",),
        models=("m.gguf",),
        task="logits",
        data=str(tmp_path / "prompts.txt"),
    )
    (run / "run.json").write_text("{}")

    folder, prompts, logits, found = computing.logits_and_reference(
        *(Request(board="here"), asked, ScorerSettings(), Silent()),
        reference=str(run),
        reach=CONNECTED,
    )

    def result(*, must_be_close: bool) -> LogitsResult:
        return LogitsResult(
            folder=folder, logits=logits, prompts=prompts, found=found, must_be_close=must_be_close
        )

    assert result(must_be_close=False).error is None
    error = result(must_be_close=True).error
    assert isinstance(error, DifferentError)
    assert "not all of 2 prompts are close" in error.message


def test_prompts_are_lines(tmp_path: Path) -> None:
    path = tmp_path / "prompts.txt"
    path.write_text("one\n\ntwo\nthree\n")
    assert read_prompts(path, 2) == ("one", "two")
    path.write_text("\n")
    with pytest.raises(UsageError, match="holds no prompts"):
        read_prompts(path)
