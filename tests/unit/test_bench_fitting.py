"""What is expected of models on a board that does not answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from armload.bench.fitting import fit
from armload.core.progress import Silent
from armload.engines.plan import Plan
from armload.models.find import resolve
from armload.runs.request import Request
from tests.recurrent import hybrid_model, recurrent_model

BOARD = """extends: dayu200
reach:
  kind: ssh
  host: no-such-board.invalid
"""


class Telling(Silent):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


@pytest.fixture(autouse=True)
def _board_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("boards").mkdir()
    Path("boards/away.yaml").write_text(BOARD, encoding="utf-8")


def test_what_to_do_about_a_board_that_does_not_answer_is_said() -> None:
    progress = Telling()
    found = fit(Request(board="away"), ["word-problems:Q2_K"], Plan(prompt_tokens=4), progress)
    assert "cannot be resolved" in found.unreachable
    cause, remedy, instead = progress.said
    assert cause == found.unreachable
    assert "~/.ssh/config" in remedy
    assert instead == "Predicting from the facts in boards/away.yaml instead."


def test_the_speed_of_a_model_with_other_layers_than_attention_is_not_predicted() -> None:
    tokens = resolve("like:stories260k:Q8_0", Silent())
    paths = [str(write(tokens, Path(write.__name__))) for write in (recurrent_model, hybrid_model)]
    found = fit(Request(board="away"), paths, Plan(prompt_tokens=4), Silent())
    recurrent, hybrid = found.models
    assert "its speed cannot be predicted" in recurrent.sentence
    assert "recurrent or hybrid (2 of 2 layers without attention)" in recurrent.sentence
    assert "recurrent or hybrid (1 of 2 layers without attention)" in hybrid.sentence
    assert (hybrid.prediction.verdict, hybrid.prediction.token_s) == ("fits", None)
