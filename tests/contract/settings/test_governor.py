"""The clusters of a board, and governors that are set for a run and given back."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from armload.analysis.conditions_log import read_governor
from armload.boards.board import Board
from armload.boards.conditions import ClusterState
from armload.boards.host import Host
from armload.boards.probe import probe
from armload.boards.sensors import Sensor
from armload.core.errors import BoardError
from armload.deploy.follow import CutShortError, end_orphan, follow, stop
from armload.deploy.launch import BoardSetup, check_governors
from tests.contract.launching import launched, nothing, ran
from tests.contract.settings.kernel import CPUS, Kernel, board_host
from tests.waiting import wait_until

PERFORMANCE = BoardSetup(governors=(("performance", ()),))


def test_clusters_and_sensors_are_read(host: Host, board: Board, kernel: Kernel) -> None:
    kernel.shows(0, "soc-thermal", "41875\n")
    kernel.shows(1, "gpu thermal", "43125\n")
    kernel.shows(2, "dead", "")
    kernel.shows(10, "package", "39000\n")
    now = probe(host, board).conditions
    assert now.clusters[:2] == (
        ClusterState(cores=(0, 1), governor="schedutil", khz=408_000, max_khz=1_800_000),
        ClusterState(cores=(2,), governor="powersave", khz=600_000, max_khz=2_400_000),
    )
    assert set(now.sensors) == {
        Sensor(zone=0, name="soc-thermal", celsius=41.875),
        Sensor(zone=1, name="gpu thermal", celsius=43.125),
        Sensor(zone=2, name="dead", celsius=None, left_out="no answer"),
        Sensor(zone=10, name="package", celsius=39),
    }
    assert now.celsius == 43.125


def test_a_run_has_its_governor_and_the_board_its_own_again(
    host: Host, board: Board, kernel: Kernel, tmp_path: Path
) -> None:
    check_governors(host, "performance", ())
    assert kernel.governors() == ["schedutil", "powersave"]
    look = f"cat {CPUS}/cpufreq/policy*/scaling_governor"
    local = ran(host, board.workdir, tmp_path / "run", "sh", "-c", look, setup=PERFORMANCE)
    assert (local / "stdout").read_text().split() == ["performance", "performance"]
    assert read_governor(local) == "performance"
    assert kernel.governors() == ["schedutil", "powersave"]


def test_governors_come_back_after_a_program_that_fails_is_stopped_or_not_there(
    host: Host, board: Board, kernel: Kernel
) -> None:
    failing = launched(host, board.workdir, "false", name="failing", setup=PERFORMANCE)
    assert follow(host, failing, nothing) == 1
    assert kernel.governors() == ["schedutil", "powersave"]
    absent = launched(host, board.workdir, "/no/such/program", name="absent", setup=PERFORMANCE)
    assert follow(host, absent, nothing) == 127
    assert kernel.governors() == ["schedutil", "powersave"]
    stopped = launched(host, board.workdir, "sleep", "600", name="stopped", setup=PERFORMANCE)
    wait_until(lambda: kernel.governors() == ["performance", "performance"], within_s=30)
    stop(host, stopped)
    assert kernel.governors() == ["schedutil", "powersave"]


def test_governors_come_back_when_nobody_is_there_any_more(
    host: Host, board: Board, kernel: Kernel
) -> None:
    folder = launched(host, board.workdir, "sleep", "1", setup=PERFORMANCE)
    host.close()
    wait_until(lambda: Path(folder / "exit").exists(), within_s=30)
    assert kernel.governors() == ["schedutil", "powersave"]


def test_governors_come_back_with_the_end_of_a_run_that_lost_its_script(
    host: Host, board: Board, kernel: Kernel
) -> None:
    folder = launched(host, board.workdir, "sleep", "600", setup=PERFORMANCE)
    wait_until(
        lambda: Path(folder / "pid").exists() and Path(folder / "pid").read_text() != "",
        within_s=30,
    )
    os.kill(int(Path(folder / "wrapper").read_text()), signal.SIGKILL)
    with pytest.raises(CutShortError):
        follow(host, folder, nothing)
    assert kernel.governors() == ["performance", "performance"]
    end_orphan(host, folder)
    assert kernel.governors() == ["schedutil", "powersave"]
    # What a person sets afterwards stays.
    kernel.has_policy("cpufreq/policy9", "9", "performance", 1, 1)
    end_orphan(host, folder)
    assert kernel.governors() == ["schedutil", "powersave", "performance"]


def test_an_old_kernel_shows_each_policy_under_each_of_its_cores(
    tmp_path: Path, board: Board, shell: str
) -> None:
    kernel = Kernel(tmp_path / "old")
    kernel.has_policy("cpu0/cpufreq", "0 1", "ondemand", 1_000_000, 1_992_000)
    kernel.shows_again("cpu1/cpufreq", "../cpu0/cpufreq")
    with board_host(tmp_path / "server", shell, kernel) as host:
        (cluster, *_) = probe(host, board).conditions.clusters
        assert (cluster.cores, cluster.governor) == ((0, 1), "ondemand")
        look = f"cat {CPUS}/cpu?/cpufreq/scaling_governor"
        local = ran(host, board.workdir, tmp_path / "run", "sh", "-c", look, setup=PERFORMANCE)
        assert (local / "stdout").read_text().split() == ["performance", "performance"]
        assert kernel.governors() == ["ondemand"]


def test_a_governor_that_cannot_be_had_is_refused_in_words(
    tmp_path: Path, kernel: Kernel, shell: str
) -> None:
    with board_host(tmp_path / "server", shell, kernel, read_only=True) as host:
        with pytest.raises(BoardError, match="is schedutil, and this user may not change it"):
            check_governors(host, "performance", ())
        with pytest.raises(
            BoardError, match="there is no frequency governor 'quick' for the CPU"
        ) as caught:
            check_governors(host, "quick", ())
        assert "performance, powersave, schedutil" in caught.value.remedy
    bare = Kernel(tmp_path / "bare")
    with (
        board_host(tmp_path / "bare-server", shell, bare) as host,
        pytest.raises(BoardError, match="exposes no CPU frequency governors"),
    ):
        check_governors(host, "performance", ())
