"""The monitor of a service's board: its clock, its state, and another one when it has gone."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

import psutil
import pytest

from armload.boards.host import Host
from armload.build.helper import MONITOR, helper
from armload.build.target import machine_architecture
from armload.core.errors import BoardError
from armload.core.ids import boot_id
from armload.fleet.gateway_host import GatewayHost
from armload.serving.monitor import Monitor


@pytest.fixture
def folder(tmp_path: Path) -> PurePosixPath:
    """A run's folder that has used the monitor."""
    shutil.copy(helper(MONITOR, architecture=machine_architecture()).path, tmp_path / MONITOR)
    (tmp_path / "uses").write_text(f"/nowhere\n{tmp_path}\n")
    (tmp_path / "boot_id").write_text(f"{boot_id()}\n")
    return PurePosixPath(tmp_path)


@pytest.fixture
def monitor(connect: Callable[[], Host], folder: PurePosixPath) -> Iterator[Monitor]:
    monitor = Monitor(connect, folder)
    yield monitor
    monitor.close()
    for process in running(folder):
        process.kill()


def running(folder: PurePosixPath) -> list[psutil.Process]:
    program = Path(folder / MONITOR).stat()
    return [one for one in psutil.process_iter() if _runs(one, program)]


def _runs(process: psutil.Process, program: os.stat_result) -> bool:
    """By the file itself: a board with a root folder of its own knows it by another path."""
    try:
        return os.path.samestat(Path(f"/proc/{process.pid}/exe").stat(), program)
    except OSError:  # it has ended, or belongs to the kernel
        return False


def test_the_clock_is_known_within_five_milliseconds(monitor: Monitor, host: Host) -> None:
    if isinstance(host, GatewayHost):
        pytest.skip("a call of a gateway takes longer, and nothing is timed over one")
    # A machine with other work can only make it worse, for a moment: one of some tries is good.
    tries = [monitor.clock("boot") for _ in "123"]
    assert all(abs(each.board_minus_client_s) <= each.error_s for each in tries)
    assert min(each.error_s for each in tries) <= 0.005


def test_the_state_is_told_at_a_time_of_the_boards_clock(monitor: Monitor) -> None:
    before_s = time.monotonic()
    sample = monitor.sample()
    assert before_s <= sample["at_s"] <= time.monotonic()
    assert 0 < sample["memory_available_bytes"] <= psutil.virtual_memory().total


def test_it_is_started_again_when_it_has_gone(monitor: Monitor, folder: PurePosixPath) -> None:
    monitor.sample()
    (process,) = running(folder)
    process.kill()
    process.wait()
    assert monitor.sample()["at_s"] > 0


def test_a_run_without_it_is_said(connect: Callable[[], Host], tmp_path: Path) -> None:
    (tmp_path / "uses").write_text("/nowhere\n")
    (tmp_path / "boot_id").write_text(f"{boot_id()}\n")
    with pytest.raises(BoardError, match="no monitor: the monitor is not there"):
        Monitor(connect, PurePosixPath(tmp_path)).sample()


def test_the_clock_and_state_of_another_boot_are_not_told(
    monitor: Monitor, folder: PurePosixPath
) -> None:
    Path(folder / "boot_id").write_text("00000000-0000-4000-8000-000000000000\n")
    with pytest.raises(BoardError, match="no monitor: the board was restarted"):
        monitor.sample()
    with pytest.raises(BoardError, match="no monitor: the board was restarted"):
        monitor.clock("boot")
