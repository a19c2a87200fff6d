"""A meter is asked while something else goes on, and never in its way."""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from armload.analysis.energy import FILE_NAME, PowerLine
from armload.boards.board import Board
from armload.boards.virtual.process import free_port
from armload.core.progress import Silent
from armload.runs.power import idle_power, power_recorded
from armload.runs.session import Connection
from tests.person import Person
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
        with closing(to_board), power_recorded(to_board, tmp_path / "run" / FILE_NAME, Silent()):
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
    with closing(to_board), power_recorded(to_board, tmp_path / "run" / FILE_NAME, Heard()):
        time.sleep(2.5)
    (message,) = said
    assert message.startswith(
        "The run continues without a power reading: mine: power meter (tasmota at"
    )
    assert sum("no answer" in line.problem for line in lines(tmp_path / "run")) >= 2


def test_a_board_without_a_meter_has_no_file(tmp_path: Path) -> None:
    to_board = connection(tmp_path, None)
    with closing(to_board), power_recorded(to_board, tmp_path / "run" / FILE_NAME, Silent()):
        pass
    assert not (tmp_path / "run").exists()


def test_the_idle_board_is_measured_for_some_seconds_and_kept_with_what_follows(
    tmp_path: Path,
) -> None:
    with plug("/rpc/Switch.GetStatus?id=0", shelly(2.5)) as url:
        to_board = connection(tmp_path, {"kind": "shelly", "url": url})
        with closing(to_board):
            idle = idle_power(to_board, Silent())
            with power_recorded(to_board, tmp_path / FILE_NAME, Silent(), idle=idle):
                time.sleep(0.2)
    assert len(idle) == 7
    assert {line.reading.watts for line in idle if line.reading} == {2.5}
    assert idle[-1].here_s - idle[0].here_s == pytest.approx(6.0, abs=0.5)
    kept = lines(tmp_path)
    assert kept[:7] == list(idle)
    assert all(line.is_idle for line in kept[:7])
    assert not any(line.is_idle for line in kept[7:])


def test_a_meter_that_does_not_answer_is_not_waited_for_before_a_run(tmp_path: Path) -> None:
    power = {"kind": "tasmota", "url": f"http://127.0.0.1:{free_port()}"}
    with closing(connection(tmp_path, power)) as to_board:
        (line,) = idle_power(to_board, Silent())
    assert "no answer" in line.problem
    with closing(connection(tmp_path, None)) as to_board:
        assert idle_power(to_board, Silent()) == ()


seldom = pytest.mark.exhaustive(
    covers=[
        "armload/analysis/energy.py",
        "armload/evaluation/answer_energy.py",
        "armload/runs/power.py",
        "armload/tuning/continuing.py",
    ]
)
IDLE_W, BUSY_W = 2.0, 8.0
WAVE = f"import time; print({BUSY_W} + (0.2 if int(time.time()) % 2 else -0.2))"
PROGRAM = {"kind": "command", "command": [sys.executable, "-c", WAVE], "sees": "board"}


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    somebody = Person(tmp_path_factory.mktemp("person"))
    somebody.add_emulated("here")
    add_meter(somebody, "here", PROGRAM)
    try:
        yield somebody
    finally:
        somebody.types("board.down", "--board", "mine", "--yes")


def add_meter(person: Person, board: str, power: Mapping[str, object]) -> None:
    file = person.folder / "boards" / f"{board}.yaml"
    file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), "power": power}))


@pytest.mark.machine
@pytest.mark.build
@seldom
def test_a_run_on_a_virtual_board_has_valid_joules_by_a_program_and_by_a_plug(
    person: Person,
) -> None:
    words = ("--model", "demo", "-n", "24")
    add_meter(person, "mine", PROGRAM)
    first = person.benches(*words)
    assert_takes(first, BUSY_W)
    assert first["energy"]["idle_w"] == pytest.approx(BUSY_W, abs=0.2)
    asked = itertools.count()

    def watts() -> bytes:
        number = next(asked)
        return shelly(IDLE_W if number < 7 else BUSY_W + (0.2 if number % 2 else -0.2))

    with plug("/rpc/Switch.GetStatus?id=0", watts) as url:
        add_meter(person, "mine", {"kind": "shelly", "url": url})
        second = person.benches(*words, "--subtract-idle")
    assert_takes(second, BUSY_W - IDLE_W)
    assert second["energy"]["idle_w"] == IDLE_W
    shown = " ".join(person.types("show", second["id"]).stdout.split())
    assert "J per token" in shown
    assert "W peak at the wall, idle power (2.00 W) subtracted from the energy (shelly at " in shown
    page = (person.runs / second["id"] / "report.html").read_text()
    assert "Power over the tokens" in page
    compared = " ".join(person.types("compare", first["id"], second["id"]).stdout.split())
    assert (
        "These cannot be compared: only the wall includes the supply's losses, and the idle power "
        "is subtracted from only one of them."
    ) in compared


def assert_takes(run: dict[str, Any], watts: float) -> None:
    energy, steps = run["energy"], run["steps"]
    assert energy["problem"] == ""
    length_s = (steps[-1]["end_ns"] - steps[0]["start_ns"]) / 1e9
    assert energy["joules"] == pytest.approx(watts * length_s, rel=0.03)
    decode_s = (steps[-1]["end_ns"] - steps[1]["start_ns"]) / 1e9
    tokens = run["summary"]["decode_tokens"]
    assert energy["joules_per_token"] == pytest.approx(watts * decode_s / tokens, rel=0.03)
    assert [watts for _, watts in energy["curve"]] != []


SERVED = ("--board", "here", "--model", "word-problems:Q8_0", "--threads", "1")


@pytest.mark.build
@pytest.mark.exhaustive(covers=["armload/analysis", "armload/runs"])
def test_a_load_has_joules_per_request(person: Person) -> None:
    words = ("--slots", "2", "--context", "256", "--prompt-tokens", "16", "--n-predict", "8")
    rate = ("--rate", "1", "--duration", "10", "--arrivals", "constant")
    found = json.loads(person.types("load", *SERVED, *words, *rate, "--json").stdout)
    (point,) = found["points"]
    energy, metrics = point["energy"], point["metrics"]
    assert energy["problem"] == ""
    whole_j = BUSY_W * metrics["duration_s"]
    assert energy["joules_per_request"] == pytest.approx(whole_j / metrics["ok"], rel=0.03)
    tokens = metrics["output_tokens"]
    assert energy["joules_per_token"] == pytest.approx(whole_j / tokens, rel=0.03)
    assert "J/request" in (person.folder / "loads" / found["load"] / "report.html").read_text()


@pytest.mark.build
@seldom
def test_a_search_for_energy_has_joules_per_token_as_its_cost(person: Person) -> None:
    # The meter is read once a second, so that the tokens must take some seconds.
    words = ("--for", "energy", "--model", "demo", "-n", "80", "--max-trials", "1", "--json")
    found = json.loads(person.types("tune", "--board", "here", *words).stdout)
    assert found["tuning"]["energy_basis"] == {"sees": "board", "subtracts_idle": False}
    (trial,) = found["trials"]
    (run,) = trial["outcome"]["evidence"]
    energy = json.loads((person.runs / run / "run.json").read_text())["energy"]
    assert trial["outcome"]["status"] == "measured"
    assert trial["outcome"]["cost"] == energy["joules_per_token"]


def test_a_search_for_energy_needs_a_meter_and_an_idle_board_belongs_to_it(
    person: Person,
) -> None:
    said = person.types("tune", "--board", "qemu-user", "--for", "energy", status=2).stderr
    assert "qemu-user has no power meter" in said
    said = person.types("tune", "--board", "here", "--subtract-idle", status=2).stderr
    assert "--subtract-idle cannot be combined with --for decode" in said


@pytest.mark.build
@seldom
def test_two_models_are_compared_by_the_energy_of_their_answers(person: Person) -> None:
    models = "word-problems:Q8_0,word-problems:Q2_K"
    words = ("--task", "word-problems", "--limit", "40", "--threads", "1")
    person.types("eval", "--board", "here", "--model", models, *words)
    (found,) = json.loads(person.types("tradeoff", "latest", "--json").stdout)
    for side in ("a", "b"):
        energy = found["energy"][side]
        assert energy["problem"] == ""
        seconds = [max(row) for row in found[side]["latency_s"]]
        assert energy["joules"][-1] == pytest.approx(BUSY_W * sum(seconds) / len(seconds), rel=0.2)
