"""A board whose supply fails in mid-run, from its kernel's files to what a person reads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.person import Person
from tests.servers import openssh
from tests.sysfs import show, write_tree
from tests.waiting import wait_until

FIRMWARE = "devices/platform/soc@107c000000/soc@107c000000:firmware/get_throttled"
SHOWN = "devices/system/cpu/cpu0/cpufreq/scaling_cur_freq"
CPU = "devices/system/cpu/cpufreq/policy0"

RASPBERRY_PI_5 = {
    "firmware/devicetree/base/model": "Raspberry Pi 5 Model B Rev 1.0\0",
    FIRMWARE: "0",
    "class/thermal/thermal_zone0/type": "cpu-thermal",
    "class/thermal/thermal_zone0/temp": 61_250,
    "class/thermal/thermal_zone1/type": "PMIC-Die",
    "class/thermal/thermal_zone1/temp": 100_000,
    "class/thermal/thermal_zone2/type": "broken",
    "class/thermal/thermal_zone2/temp": -273_150,
    f"{CPU}/affected_cpus": "0 1",
    f"{CPU}/scaling_governor": "ondemand",
    f"{CPU}/scaling_cur_freq": 2_400_000,
    f"{CPU}/cpuinfo_max_freq": 2_400_000,
    f"{CPU}/scaling_max_freq": 2_400_000,
    SHOWN: 600_000,
}

TALKS = 'n=0; until [ -e "$1" ]; do n=$((n + 1)); echo "word $n"; sleep 0.1; done'


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    return write_tree(tmp_path / "sys", RASPBERRY_PI_5)


@pytest.fixture
def person(tmp_path: Path, sysfs: Path) -> Iterator[Person]:
    somebody = Person(tmp_path / "person")
    with openssh(tmp_path / "server", over={"/sys": sysfs}) as server:
        somebody.add_board(
            "pi",
            f"target: host\nworkdir: {tmp_path / 'board'}\nreach:\n  kind: ssh\n"
            f"  host: 127.0.0.1\n  port: {server.port}\n  key: {server.key}\n",
        )
        somebody.types("board.trust", "--board", "pi", "--yes")
        yield somebody


def traced(person: Person, run: dict[str, Any]) -> set[float]:
    """Return the temperatures in a run's trace."""
    lines = (person.runs / run["id"] / "trace.jsonl").read_text().splitlines()
    return {step["celsius"] for step in map(json.loads, lines) if "step" in step}


def test_a_supply_that_fails_in_mid_run_makes_it_invalid_with_cause_time_and_remedy(
    person: Person, sysfs: Path, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    process = person.start(
        *("watch", "--board", "pi", "--json", "--", "sh", "-c", TALKS, "sh", str(gate))
    )

    def noted() -> str:
        found = [*(tmp_path / "board").glob("runs/*/throttling")]
        return found[0].read_text() if found else ""

    wait_until(lambda: "at " in noted(), within_s=60)
    show(sysfs, FIRMWARE, "50005")
    wait_until(lambda: "50005" in noted(), within_s=30)
    show(sysfs, FIRMWARE, "50000")
    wait_until(lambda: noted().rstrip().endswith(" 50000"), within_s=30)
    gate.touch()
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    run: dict[str, Any] = json.loads(out)
    assert run["board"]["device"] == "Raspberry Pi 5 Model B Rev 1.0"
    assert not run["verdict"]["valid"]
    (low,) = (each for each in run["verdict"]["findings"] if each["name"] == "under-voltage")
    event = low["figures"]["event"]
    assert event["source"] == "get_throttled"
    assert event["from_s"] > 0
    assert event["active_s"] > 0
    assert low["sentence"].startswith(f"Under-voltage at {event['from_s']:.0f} s")
    assert "Use a 5 V 5 A supply" in low["sentence"]
    # What changed since the boot is shown before and after.
    states = [run[moment]["throttling"] for moment in ("before", "after")]
    assert [each["value"] for (each,) in states] == [0, 0x50000]
    shown = " ".join(person.types("show", "--run", run["id"]).stdout.split())
    assert "5 V 5 A supply" in shown
    # The hottest zone in the trace is none that was left out.
    assert traced(person, run) == {61.2}
    assert run["before"]["celsius"] == run["after"]["celsius"] == 61.25
    moments = [(each["moment"], each["core"], each["shown_khz"]) for each in run["clocks"]]
    assert moments == [("before", 0, 600_000), ("after", 0, 600_000)]
    # Under-voltage since the boot, but not in this run.
    again = json.loads(
        person.types("watch", "--board", "pi", "--json", "--", "sh", "-c", "echo word").stdout
    )
    assert "under-voltage" not in {each["name"] for each in again["verdict"]["findings"]}
    assert any("before this run" in note for note in again["notes"])


def test_a_core_that_is_slower_than_the_kernel_shows_is_found_out(
    person: Person, sysfs: Path
) -> None:
    show(sysfs, SHOWN, 9_900_000)
    words = ("watch", "--board", "pi", "--json", "--", "sh", "-c", "echo word")
    run = json.loads(person.types(*words).stdout)
    found = {each["figures"]["kind"]: each["sentence"] for each in run["verdict"]["findings"]}
    assert "while the kernel reported 9.90" in found["slower than shown"]
    before, _ = run["clocks"]
    assert 0.5e9 < 1e9 * before["cycles"] / before["ns"] < 9e9


@pytest.mark.exhaustive(covers=["armload/boards", "toolchains"])
def test_a_probe_lists_all_sensors_and_the_boards_file_chooses(
    person: Person, tmp_path: Path
) -> None:
    table = " ".join(person.types("board.probe", "--board", "pi").stdout.split())
    assert "cpu-thermal 61 °C; left out: PMIC-Die 100 °C (constant)," in table
    assert "broken -273 °C (implausible)" in table
    assert "Raspberry Pi 5 Model B Rev 1.0" in table
    probed = json.loads(person.types("board.probe", "--board", "pi", "--json").stdout)
    assert probed["conditions"]["celsius"] == 61.25
    file = person.folder / "boards" / "pi.yaml"
    file.write_text(f"{file.read_text()}sensors: [PMIC-Die, gone]\n")
    table = " ".join(person.types("board.probe", "--board", "pi").stdout.split())
    assert "PMIC-Die 100 °C; left out: cpu-thermal 61 °C (not chosen)" in table
    assert "sensors not found gone" in table
    run = json.loads(
        person.types("watch", "--board", "pi", "--json", "--", "sh", "-c", "echo a; echo b").stdout
    )
    assert traced(person, run) == {100}
    assert run["after"]["celsius"] == 100
