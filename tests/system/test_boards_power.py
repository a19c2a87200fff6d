"""A board's own power sensors, and what ``board.probe`` makes of a meter."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from armload.boards.power import HwmonMeter, read_power
from armload.boards.ssh import SshHost
from armload.boards.virtual.process import free_port
from armload.core.errors import BoardError
from tests.command_line import run
from tests.servers import openssh


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHost]:
    """A board whose chips are an INA226 and the three channels of a Jetson's INA3221."""
    classes = tmp_path_factory.mktemp("class")
    chips = {
        "hwmon0": {"name": "cpu_thermal", "temp1_input": 51000},
        "hwmon1": {"name": "ina226", "power1_input": 4_310_000, "in1_input": 5020},
        "hwmon2": {"name": "ina3221", "in1_input": 19000, "curr1_input": 512, "in2_input": 5000},
        "hwmon3": {},
    }
    for folder, files in chips.items():
        (classes / "hwmon" / folder).mkdir(parents=True)
        for name, value in files.items():
            (classes / "hwmon" / folder / name).write_text(f"{value}\n")
    server = openssh(tmp_path_factory.mktemp("server"), over={"/sys/class": classes})
    with server as address, closing(SshHost(address, "my-board")) as host:
        yield host


def meter(chip: str, channel: int = 1) -> HwmonMeter:
    return HwmonMeter(kind="hwmon", chip=chip, channel=channel)


def test_a_chip_tells_its_power_or_volts_and_amperes(board: SshHost) -> None:
    found = read_power(meter("ina226"), board)
    assert (found.watts, found.sees) == (4.31, "board")
    assert read_power(meter("ina3221"), board).watts == pytest.approx(19 * 0.512)


def test_a_channel_or_chip_that_is_not_there_is_named_with_those_there_are(board: SshHost) -> None:
    with pytest.raises(BoardError, match="no power on that channel"):
        read_power(meter("ina3221", 2), board)
    with pytest.raises(BoardError, match="it has: cpu_thermal ina226 ina3221") as caught:
        read_power(meter("ina 219"), board)
    assert "'chip' under 'power' in boards/my-board.yaml" in caught.value.remedy


def test_the_probe_shows_what_is_drawn_or_why_that_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "boards").mkdir()
    file = tmp_path / "boards" / "mine.yaml"
    shared = f"extends: this-machine\nworkdir: {tmp_path}/work\npower:\n"
    file.write_text(f"{shared}  kind: command\n  command: [echo, '4.5']\n")
    shown = run("armload", "board.probe", "--board", "mine", cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert "4.50 W at the wall (echo 4.5)" in shown.stdout
    file.write_text(f"{shared}  kind: shelly\n  url: http://127.0.0.1:{free_port()}\n")
    shown = run("armload", "board.probe", "--board", "mine", "--json", cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    power = json.loads(shown.stdout)["power"]
    assert power["reading"] is None
    assert "no answer: " in power["problem"]
