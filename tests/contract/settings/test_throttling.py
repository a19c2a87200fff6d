"""What a run's script notes of throttling and of the supply, while the program runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from armload.analysis.conditions_log import read_throttle_log
from armload.analysis.throttling import throttle_events
from armload.boards.board import Board
from armload.boards.probe import probe
from armload.boards.ssh import SshHost
from armload.boards.throttling import ThrottleState
from armload.deploy.collect import collect
from armload.deploy.follow import follow
from tests.contract.launching import launched, nothing, waiting_for
from tests.servers import dropbear
from tests.sysfs import show, write_tree
from tests.waiting import wait_until

FIRMWARE = "devices/platform/soc/soc:firmware/get_throttled"
ALARM = "class/hwmon/hwmon2/in0_lcrit_alarm"
COOLING = "class/thermal/cooling_device1/cur_state"

RASPBERRY_PI = {
    FIRMWARE: "50000",
    "class/hwmon/hwmon0/name": "cpu_thermal",
    "class/hwmon/hwmon2/name": "rpi_volt",
    ALARM: 0,
    "class/thermal/cooling_device0/type": "pwm-fan",
    "class/thermal/cooling_device0/cur_state": 4,
    "class/thermal/cooling_device1/type": "cpufreq-cpu0",
    COOLING: 0,
}


def rows(folder: Path) -> list[str]:
    path = folder / "throttling"
    lines = path.read_text().splitlines() if path.exists() else []
    return [line.partition(" ")[2].partition(" ")[2] for line in lines if line.startswith("at ")]


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    return write_tree(tmp_path / "sys", RASPBERRY_PI)


def test_what_changes_during_a_run_is_noted_with_its_time(
    tmp_path: Path, board: Board, sysfs: Path, shell: str
) -> None:
    tools = "busybox" if shell == "busybox" else "toybox"
    over = {"/sys": sysfs}
    with dropbear(tmp_path / "server", shell=shell, tools=tools, over=over) as address:
        host = SshHost(address, "pi")
        assert probe(host, board).conditions.throttling == (
            ThrottleState(kind="firmware", name="get_throttled", value=0x50000),
            ThrottleState(kind="alarm", name="rpi_volt", value=0),
            ThrottleState(kind="cooling", name="cpufreq-cpu0", value=0),
        )
        gate = tmp_path / "gate"
        folder = launched(host, board.workdir, *waiting_for(gate))
        there = Path(folder)
        wait_until(lambda: rows(there) == ["50000 0 0"], within_s=30)
        show(sysfs, FIRMWARE, "50005")
        wait_until(lambda: rows(there)[-1] == "50005 0 0", within_s=30)
        show(sysfs, FIRMWARE, "50000")
        wait_until(lambda: rows(there)[-1] == "50000 0 0", within_s=30)
        show(sysfs, COOLING, 3)
        wait_until(lambda: rows(there)[-1] == "50000 0 3", within_s=30)
        gate.touch()
        assert follow(host, folder, nothing) == 0
        collect(host, folder, tmp_path / "run")
        host.close()
    readings = read_throttle_log(tmp_path / "run")
    # At the end, too, so that it is known how long the last lasted.
    assert [[state.value for state in each.states] for each in readings] == [
        [0x50000, 0, 0],
        [0x50005, 0, 0],
        [0x50000, 0, 0],
        [0x50000, 0, 3],
        [0x50000, 0, 3],
    ]
    low, hot = throttle_events(readings)
    assert (low.cause, low.source) == ("under-voltage", "get_throttled")
    assert (hot.cause, hot.source) == ("heat", "cpufreq-cpu0")
    assert 0 < low.from_s < hot.from_s
    assert low.active_s == pytest.approx(readings[2].at_s - readings[1].at_s)


def test_the_firmware_is_asked_by_its_tool_where_no_file_tells(
    tmp_path: Path, board: Board, shell: str
) -> None:
    bare = write_tree(tmp_path / "sys", {"kernel/nothing": ""})
    tools = "busybox" if shell == "busybox" else "toybox"
    over = {"/sys": bare}
    with dropbear(tmp_path / "server", shell=shell, tools=tools, over=over) as address:
        host = SshHost(address, "pi")
        assert probe(host, board).conditions.throttling == ()
        program = tmp_path / "server" / "bin" / "vcgencmd"
        program.write_text('#!/bin/sh\n[ "$1" = get_throttled ] && echo throttled=0x80008\n')
        program.chmod(0o755)
        name = "vcgencmd get_throttled"
        state = ThrottleState(kind="firmware", name=name, value=0x80008)
        assert probe(host, board).conditions.throttling == (state,)
        program.write_text("#!/bin/sh\necho Can\\'t open device file: /dev/vcio\nexit 1\n")
        unknown = state.model_copy(update={"value": None})
        assert probe(host, board).conditions.throttling == (unknown,)
        host.close()
