"""What power meters show, and what is said of those that answer nothing or nonsense."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from armload.boards import power
from armload.boards.board import load_board
from armload.boards.local import LocalHost
from armload.boards.power import PowerMeter, PowerReading, read_power, try_read_power
from armload.boards.virtual.process import free_port
from armload.core.errors import BoardError, DataError
from tests.hostile.servers import sends, serving
from tests.power_plugs import plug, shelly, silent_plug, tasmota

SHELLY = "/rpc/Switch.GetStatus?id=1"
TASMOTA = "/cm?cmnd=Status%208"
HOST = LocalHost("kitchen")


def meter(**values: object) -> PowerMeter:
    found: PowerMeter = TypeAdapter(PowerMeter).validate_python(values)
    return found


def complaint(**values: object) -> str:
    with pytest.raises(BoardError) as caught:
        read_power(meter(**values), HOST)
    assert caught.value.message.startswith("kitchen: power meter (")
    return caught.value.message


@pytest.fixture
def pi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for programs that the board finds first."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def vcgencmd(folder: Path, text: str) -> None:
    (folder / "vcgencmd").write_text(f"#!/bin/sh\ncat <<'EOF'\n{text}EOF\n")
    (folder / "vcgencmd").chmod(0o755)


RAILS = """\
    3V7_WL_SW_A current(0)=0.10000000A
    3V3_SYS_A current(1)=0.20000000A
   VDD_CORE_A current(7)=3.00000000A
    3V7_WL_SW_V volt(8)=3.70000000V
    3V3_SYS_V volt(9)=3.30000000V
   VDD_CORE_V volt(15)=0.80000000V
       EXT5V_V volt(24)=5.10000000V
        BATT_V volt(25)=0.00000000V
"""


def test_a_shelly_plug_is_read_past_any_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    with plug(SHELLY, shelly(13.9)) as url:
        assert read_power(meter(kind="shelly", url=url, switch=1), HOST) == PowerReading(
            watts=13.9, source=f"shelly at {url}", sees="wall"
        )
        assert "404" in complaint(kind="shelly", url=url)


def test_a_tasmota_plug_is_read() -> None:
    with plug(TASMOTA, tasmota(7)) as url:
        assert read_power(meter(kind="tasmota", url=f"{url}/"), HOST).watts == 7


def test_the_rails_of_a_raspberry_pi_5_are_summed_and_corrected_on_request(pi: Path) -> None:
    vcgencmd(pi, RAILS)
    found = read_power(meter(kind="rpi-pmic"), HOST)
    # A rail of which only the voltage is known carries an unknown current.
    assert found.watts == pytest.approx(0.37 + 0.66 + 2.4)
    assert found.sees == "board"
    corrected = read_power(meter(kind="rpi-pmic", corrected=True), HOST)
    assert corrected.watts == pytest.approx(3.43 * 1.1451 + 0.5879)
    assert corrected.source == "rpi-pmic, corrected"


def test_a_board_without_that_chip_is_said(pi: Path) -> None:
    vcgencmd(pi, 'error=2 error_msg="Invalid arguments"\n')
    assert "Invalid arguments" in complaint(kind="rpi-pmic")
    (pi / "vcgencmd").unlink()
    assert "not found" in complaint(kind="rpi-pmic")


def test_a_program_may_tell_the_watts() -> None:
    command = [sys.executable, "-c", "print(' 4.25 ')"]
    found = read_power(meter(kind="command", command=command, sees="board"), HOST)
    assert (found.watts, found.sees) == (4.25, "board")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("print('4 watts')", "it printed '4 watts', not a number of watts"),
        ("raise SystemExit(3)", "status 3, not a number of watts"),
        ("print('nan')", "it printed 'nan', not a number of watts"),
        ("print(True)", "it printed 'True', not a number of watts"),
        ("print('5_0')", "it printed '5_0', not a number of watts"),
        ("print('1e300')", "1e+300 W is not a plausible"),
        ("print('x' * (1 << 20))", "it wrote more than 64 KiB, not a number of watts"),
    ],
)
def test_a_program_that_tells_none_is_named(code: str, said: str) -> None:
    assert said in complaint(kind="command", command=[sys.executable, "-c", code])
    assert "cannot be run" in complaint(kind="command", command=["no-such-meter"])


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"<!DOCTYPE html><title>Login</title>", "has no apower; it begins '<!DOCTYPE html>"),
        (b'{"id": 0}', "has no apower"),
        (b"[]", "has no apower"),
        (shelly(None), "has no apower"),
        (shelly("off"), "has no apower"),
        (shelly(watts=True), "has no apower"),
        (shelly("12"), "has no apower"),
        (shelly(1e300), "1e+300 W is not a plausible"),
        (b" " * (1 << 17), "its answer is larger than 64 KiB"),
        (b'{"apower": ' + b"9" * 400 + b"}", "has no apower"),
        (b"[" * 60_000, "has no apower"),
        (shelly(-3.5), "-3.5 W is not a plausible"),
        (b"\xff\xfe", "has no apower"),
    ],
)
def test_a_plug_that_answers_nonsense_is_named(answer: bytes, said: str) -> None:
    with plug(SHELLY, answer) as url:
        assert said in complaint(kind="shelly", url=url, switch=1)


def test_a_plug_with_several_outlets_is_asked_for_the_one_that_the_file_names() -> None:
    with plug(TASMOTA, tasmota([7, 0.5, 20])) as url:
        said = complaint(kind="tasmota", url=url)
        assert said.endswith("the plug has 3 outlets or phases: 7 W, 0.5 W, 20 W.")
        for channel, watts in ((1, 7), (3, 20), ("sum", 27.5)):
            found = read_power(meter(kind="tasmota", url=url, channel=channel), HOST)
            assert found.watts == watts
        assert "3 outlets" in complaint(kind="tasmota", url=url, channel=4)
    with plug(TASMOTA, tasmota([7])) as url:
        assert read_power(meter(kind="tasmota", url=url), HOST).watts == 7


def test_a_plug_that_refers_to_another_address_is_not_followed() -> None:
    answer = b"HTTP/1.1 301 Moved Permanently\r\nLocation: https://plug.lan/\r\n\r\n"
    with serving(sends(answer)) as url:
        found = try_read_power(meter(kind="shelly", url=url), HOST)
    assert found.reading is None
    assert found.problem.endswith(
        "it answered 301 Moved Permanently. It refers to https://plug.lan/: correct 'url' under "
        "'power'."
    )


@pytest.mark.parametrize("part", [b"", b" "])
def test_a_plug_whose_answer_never_ends_is_left_after_a_while(
    part: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(power, "_TIMEOUT_S", 0.6)
    with silent_plug(part) as url:
        began_s = time.monotonic()
        said = complaint(kind="shelly", url=url)
        assert time.monotonic() - began_s < 3.0
    assert "no answer: " in said


def test_a_plug_that_is_away_is_a_note_and_no_end() -> None:
    answer = try_read_power(meter(kind="tasmota", url=f"http://127.0.0.1:{free_port()}"), HOST)
    assert answer.reading is None
    assert "no answer: " in answer.problem


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("{kind: shelly, url: 192.168.1.70}", "power.url"),
        ("{kind: shelly}", "power.url"),
        ("{kind: sunlight}", "power.kind: must be one of 'hwmon', 'rpi-pmic', 'shelly'"),
        ("{kind: command, command: []}", "power.command"),
    ],
)
def test_a_meter_that_makes_no_sense_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "boards").mkdir()
    file = tmp_path / "boards" / "mine.yaml"
    file.write_text(f"target: rk3568\nreach: {{kind: local}}\nworkdir: w\npower: {written}\n")
    with pytest.raises(DataError) as caught:
        load_board("mine")
    assert said in caught.value.message
