"""How long questions will take is said once for the whole command, whatever is known."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from armload.boards.board import VirtualReach, load_board
from armload.boards.group import Group
from armload.boards.probe import probe
from armload.core.errors import BoardError
from armload.core.progress import ProgressStep, Silent
from armload.engines.prediction import Prediction
from armload.engines.scorer import SCORER, Scoring, ScoringPlan
from armload.engines.spread import LinkRates
from armload.evaluation.evaluating import say_duration
from armload.models.find import model_called
from armload.runs import spreading
from armload.runs.predicting import adjusted_for_emulation
from armload.runs.reach import ConnectedBoard
from armload.runs.request import Request
from armload.runs.session import Connection, Session
from tests.person import MEASURED
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


def reached(folder: Path, name: str, facts: str, **others: Any) -> Session:
    (folder / "boards").mkdir(exist_ok=True)
    (folder / name).mkdir()
    if facts:  # else nothing tells how fast the board is
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        rates = MEASURED.model_dump_json(exclude_none=True)
        (folder / name / f".rates.{boot}").write_text(rates + "\n")
    board = f"target: rk3568\nreach: {{kind: local}}\nworkdir: {folder}/{name}\n{facts}"
    (folder / "boards" / f"{name}.yaml").write_text(board)
    connection = Connection(load_board(name), Silent())
    return Session(
        request=Request(board=name),
        main_board=connection.board,
        connection=connection,
        found=probe(connection.host, connection.board),
        binaries={},
        **others,
    )


def said_by(
    where: Session, folder: Path, *, parts: int = 2, questions: int = 100, tokens: int = 160
) -> str:
    (folder / SCORER).write_bytes(PROGRAM)
    plan = ScoringPlan(items_sha256="0" * 64, items_count=questions, context_tokens=512)
    model = model_called("word-problems:Q2_K", Silent())
    engine = Scoring(plan, binary(folder / SCORER), model, folder / "items.jsonl")
    said = Said()
    board = ConnectedBoard(where, said)
    say_duration(board, [(engine, tokens)] * parts, None, said)
    say_duration(board, [(engine, tokens)] * parts, 120, said)
    without, limited = said.sentences
    assert limited.endswith(" --max-time stops after 2 min.")
    return without


def said_of(folder: Path, *, facts: str = "", parts: int = 2, questions: int = 100) -> str:
    return said_by(reached(folder, "here", facts), folder, parts=parts, questions=questions)


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


def test_a_virtual_board_s_time_is_left_to_what_would_time_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = reached(tmp_path, "here", FAST)
    predict = ConnectedBoard.predict_before_run
    virtual = where.main_board.model_copy(update={"reach": VirtualReach(kind="virtual")})

    def predicted(board: ConnectedBoard, engine: Scoring) -> Prediction:
        found = predict(board, engine)
        assert found is not None
        return adjusted_for_emulation(virtual, found)

    monkeypatch.setattr(ConnectedBoard, "predict_before_run", predicted)
    assert said_by(where, tmp_path) == (
        "The time for 200 questions of up to 160 tokens cannot be estimated: here is emulated, so "
        "its speed depends on this machine and cannot be estimated from facts. To estimate a "
        "model's speed there: armload fit --board here --model MODEL."
    )


def group_of(folder: Path, facts_of_other: str) -> Session:
    other = reached(folder, "there", facts_of_other)
    (folder / "boards" / "here.yaml").write_text("extends: this-machine\ntarget: rk3568\n")
    group = Group(name="both", members=("here", "there"))
    return reached(folder, "here", FAST, group=group, other_members=(other,))


def test_questions_to_a_group_take_what_its_forecast_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The program that measures a connection would have to be compiled for it.
    slow = LinkRates(board="there", round_trip_s=1.0, to_bytes_per_s=1e9, from_bytes_per_s=1e9)
    monkeypatch.setattr(spreading, "measured_links", lambda *_: (slow,))
    said = said_by(group_of(tmp_path, FAST), tmp_path, parts=1, questions=1, tokens=600)
    # A token takes a round trip.
    assert said == (
        "1 question of up to 600 tokens takes at least 10 min if all answers are that long."
    )


def test_a_member_of_unknown_speed_makes_the_time_of_its_group_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spreading, "measured_links", lambda *_: ())
    # As if the program that measures could not be compiled.
    monkeypatch.setattr(spreading, "measured_rates", lambda _host, _board, found, _: found.rates)
    assert said_by(group_of(tmp_path, ""), tmp_path) == (
        "The time for 200 questions of up to 160 tokens cannot be estimated: the files of "
        "the members of both do not all state the CPU's speed (facts: clusters with max_mhz)."
    )


def test_a_forecast_that_fails_says_what_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> None:
        raise BoardError("there has no address in the group's network.")

    monkeypatch.setattr(spreading, "measured_links", failing)
    assert said_by(group_of(tmp_path, FAST), tmp_path) == (
        "The time for 200 questions of up to 160 tokens cannot be estimated: there has no address "
        "in the group's network."
    )
