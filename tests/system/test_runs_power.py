"""A meter is asked while something else goes on, and never in its way."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest

from armload.analysis.energy import FILE_NAME, PowerLine
from armload.boards.board import Board
from armload.boards.virtual.process import free_port
from armload.core.progress import Silent
from armload.runs.power import power_recorded
from armload.runs.session import Connection
from tests.power_plugs import plug, shelly


def connection(tmp_path: Path, power: Mapping[str, object] | None) -> Connection:
    values = {
        "name": "mine",
        "target": "rk3568",
        "reach": {"kind": "local"},
        "workdir": str(tmp_path / "work"),
        "power": power,
    }
    return Connection(Board.model_validate(values), Silent())


def lines(folder: Path) -> list[PowerLine]:
    text = (folder / FILE_NAME).read_text()
    return [PowerLine.model_validate_json(line) for line in text.splitlines()]


def test_samples_come_every_second_between_two_alignments_of_the_clocks(tmp_path: Path) -> None:
    with plug("/rpc/Switch.GetStatus?id=0", shelly(7.5)) as url:
        to_board = connection(tmp_path, {"kind": "shelly", "url": url})
        with closing(to_board), power_recorded(to_board, tmp_path / "run", Silent()):
            time.sleep(3.5)
    first, *samples, last = lines(tmp_path / "run")
    uptime_s = float(Path("/proc/uptime").read_text().split()[0])
    ahead_s = uptime_s - time.monotonic()
    for line in (first, last):
        assert line.board_s is not None
        assert line.board_s - line.here_s == pytest.approx(ahead_s, abs=0.2)
    assert 3 <= len(samples) <= 5
    assert {line.reading.watts for line in samples if line.reading} == {7.5}


def test_a_plug_that_is_away_is_mentioned_once_and_ends_nothing(tmp_path: Path) -> None:
    said: list[str] = []

    class Heard(Silent):
        def say(self, text: str) -> None:
            said.append(text)

    power = {"kind": "tasmota", "url": f"http://127.0.0.1:{free_port()}"}
    to_board = connection(tmp_path, power)
    with closing(to_board), power_recorded(to_board, tmp_path / "run", Heard()):
        time.sleep(2.5)
    (message,) = said
    assert message.startswith(
        "The run continues without a power reading: mine: power meter (tasmota at"
    )
    assert sum("no answer" in line.problem for line in lines(tmp_path / "run")) >= 2


def test_a_board_without_a_meter_has_no_file(tmp_path: Path) -> None:
    to_board = connection(tmp_path, None)
    with closing(to_board), power_recorded(to_board, tmp_path / "run", Silent()):
        pass
    assert not (tmp_path / "run").exists()
