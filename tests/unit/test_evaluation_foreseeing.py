"""How long questions will take is said once for the whole command, whatever is known."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from armload.boards.board import load_board
from armload.boards.probe import probe
from armload.core.progress import ProgressStep, Silent
from armload.engines.scorer import SCORER, Scoring, ScoringPlan
from armload.evaluation.evaluating import say_duration
from armload.models.find import model_called
from armload.runs.request import Request
from armload.runs.session import Connection, Session
from tests.unit.samples import binary
from tests.unit.test_engines_scorer import PROGRAM

FAST = "facts: {clusters: [{cores: 2, name: Cortex-A55, max_mhz: 2000}]}\n"


class Said:
    """What is said."""

    def __init__(self) -> None:
        self.sentences: list[str] = []

    def say(self, text: str) -> None:
        """Keep it."""
        self.sentences.append(text)

    @contextmanager
    def step(
        self, label: str, *, total: float | None = None, unit: str = ""
    ) -> Iterator[ProgressStep]:
        """Show nothing."""
        with Silent().step(label, total=total, unit=unit) as step:
            yield step


def said_of(folder: Path, *, facts: str = "", parts: int = 2, questions: int = 100) -> str:
    (folder / "boards").mkdir()
    (folder / SCORER).write_bytes(PROGRAM)
    board = f"target: rk3568\nreach: {{kind: local}}\nworkdir: {folder}/work\n{facts}"
    (folder / "boards" / "here.yaml").write_text(board)
    connection = Connection(load_board("here"), Silent())
    where = Session(
        request=Request(board="here"),
        main_board=connection.board,
        connection=connection,
        found=probe(connection.host, connection.board),
        binaries={},
    )
    plan = ScoringPlan(items_sha256="0" * 64, items_count=questions, context_tokens=512)
    model = model_called("word-problems:Q2_K", Silent())
    engine = Scoring(plan, binary(folder / SCORER), model, folder / "items.jsonl")
    said = Said()
    say_duration(where, [(engine, 160)] * parts, None, said)
    say_duration(where, [(engine, 160)] * parts, 120, said)
    without, limited = said.sentences
    assert limited.endswith(" --max-time stops after 2 min.")
    return without


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of its own."""
    monkeypatch.chdir(tmp_path)


def test_all_parts_are_one_estimate(tmp_path: Path) -> None:
    said = said_of(tmp_path, facts=FAST)
    assert said.startswith("200 questions of up to 160 tokens take at least ")
    assert said.endswith(" if all answers are that long.")


def test_short_times_are_said_too(tmp_path: Path) -> None:
    said = said_of(tmp_path, facts=FAST, parts=1, questions=2)
    assert " take at least " in said
    assert said.split(" take at least ")[1].split()[1] == "s"


def test_an_unknown_time_is_called_unknown_with_what_would_tell(tmp_path: Path) -> None:
    assert said_of(tmp_path) == (
        "The time for 200 questions of up to 160 tokens cannot be estimated: the file of board "
        "here does not state the CPU's speed (facts: clusters with max_mhz)."
    )
