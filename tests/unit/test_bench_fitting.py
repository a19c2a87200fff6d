"""What is expected of models on a board that does not answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from armload.bench.fitting import fit
from armload.core.progress import Silent
from armload.engines.plan import Plan
from armload.runs.session import Request

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


def test_what_to_do_about_a_board_that_does_not_answer_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("boards").mkdir()
    Path("boards/away.yaml").write_text(BOARD, encoding="utf-8")
    progress = Telling()
    found = fit(Request(board="away"), ["word-problems:Q2_K"], Plan(prompt_tokens=4), progress)
    assert "cannot be resolved" in found.unreachable
    cause, remedy, instead = progress.said
    assert cause == found.unreachable
    assert "~/.ssh/config" in remedy
    assert instead == "Predicting from the facts in boards/away.yaml instead."
