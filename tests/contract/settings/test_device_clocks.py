"""Clocks of memory and GPU: what a board shows, what a run notes, and governors of its devices."""

from __future__ import annotations

from pathlib import Path

import pytest

from armload.analysis.conditions_log import read_governor, read_governors
from armload.analysis.device_clocks import read_device_clocks_of_run
from armload.boards.board import Board
from armload.boards.device_clocks import DeviceClock, sampled_clocks
from armload.boards.host import Host
from armload.boards.probe import probe
from armload.core.errors import BoardError
from armload.core.progress import Silent
from armload.core.shell import quote
from armload.deploy.follow import follow, stop
from armload.deploy.launch import BoardSetup, check_governors, governor_settings
from armload.deploy.rates import measured_rates
from tests.contract.launching import launched, nothing, ran
from tests.contract.settings.kernel import Kernel, board_host
from tests.waiting import wait_until

DEVICES = "/sys/class/devfreq"
DMC_STEPS, GPU_STEPS = (528_000_000, 2_112_000_000), (300_000_000, 1_000_000_000)
BOTH = "memory=performance+gpu=performance"


@pytest.fixture
def kernel(kernel: Kernel) -> Kernel:
    kernel.has_device("dmc", "dmc_ondemand", 528_000_000, DMC_STEPS)
    kernel.has_device("fb000000.gpu", "simple_ondemand", 300_000_000, GPU_STEPS)
    (kernel.devices / "silent").mkdir()
    return kernel


def governors(kernel: Kernel) -> list[str]:
    paths = sorted(kernel.devices.glob("*/governor"))
    return [path.read_text().strip() for path in paths]


def clocks_of_board(host: Host, board: Board) -> tuple[DeviceClock, ...]:
    return probe(host, board).conditions.device_clocks


def test_each_device_is_shown_with_its_clock_and_its_governor(
    host: Host, board: Board, kernel: Kernel
) -> None:
    memory, gpu, silent = clocks_of_board(host, board)
    assert memory == DeviceClock(
        path=f"{DEVICES}/dmc/cur_freq",
        name="dmc",
        kind="memory",
        governor="dmc_ondemand",
        hz=528_000_000,
        limit_hz=2_112_000_000,
        highest_hz=2_112_000_000,
    )
    assert (gpu.kind, gpu.hz, gpu.governor) == ("gpu", 300_000_000, "simple_ondemand")
    assert silent == DeviceClock(path=f"{DEVICES}/silent/cur_freq", name="silent", kind="other")


def test_devices_have_their_governors_for_the_run_and_their_own_again(
    host: Host, board: Board, kernel: Kernel, tmp_path: Path
) -> None:
    clocks = clocks_of_board(host, board)
    wanted = f"cpu=performance+{BOTH}"
    check_governors(host, wanted, clocks)
    before = (kernel.governors(), governors(kernel))
    setup = BoardSetup(governors=governor_settings("b", wanted, clocks))
    look = f"cat {DEVICES}/*/governor"
    local = ran(host, board.workdir, tmp_path / "run", "sh", "-c", look, setup=setup)
    assert (local / "stdout").read_text().split() == ["performance", "performance"]
    assert read_governor(local) == wanted
    assert read_governors(local)[f"{DEVICES}/dmc"] == "performance"
    assert (kernel.governors(), governors(kernel)) == before
    stopped = launched(host, board.workdir, "sleep", "600", name="stopped", setup=setup)
    wait_until(lambda: governors(kernel) == ["performance"] * 2, within_s=30)
    stop(host, stopped)
    assert (kernel.governors(), governors(kernel)) == before


def test_a_run_notes_the_time_at_each_clock(
    host: Host, board: Board, kernel: Kernel, tmp_path: Path
) -> None:
    counted = kernel.devices / "dmc/trans_stat"
    counted.write_text(table(at_528_ms=90_000, at_2112_ms=5_000))
    now = probe(host, board).conditions
    clocks = sampled_clocks(now.device_clocks)
    setup = BoardSetup(clocks=tuple(each.path for each in clocks))
    gate = quote(str(tmp_path / "on"))
    program = f"echo $ARMLOAD_CLOCKS; until [ -e {gate} ]; do sleep 0.1; done"
    gated = launched(host, board.workdir, "sh", "-c", program, setup=setup)
    out = Path(gated / "stdout")
    wait_until(lambda: out.exists() and out.read_text() != "", within_s=30)
    counted.write_text(table(at_528_ms=96_000_000, at_2112_ms=95_000_000))
    (tmp_path / "on").touch()
    assert follow(host, gated, nothing) == 0
    paths = out.read_text().split()
    assert paths == [f"{DEVICES}/dmc/cur_freq", f"{DEVICES}/fb000000.gpu/cur_freq"]
    (used,) = read_device_clocks_of_run(Path(gated), (), now)
    assert [round(each.share, 2) for each in used.times] == [0.5, 0.5]


def table(*, at_528_ms: int, at_2112_ms: int) -> str:
    return (
        "     From  :   To\n           : 5280000002112000000   time(ms)\n"
        f"* 528000000:         0         7{at_528_ms:10}\n"
        f" 2112000000:         6         0{at_2112_ms:10}\nTotal transition : 13\n"
    )


def test_bandwidth_is_measured_under_the_governor_of_the_run_and_kept_with_the_clock(
    host: Host, board: Board, kernel: Kernel
) -> None:
    before, found = governors(kernel), probe(host, board)
    wanted = "memory=performance"
    rates = measured_rates(host, board, found, Silent(), governor=wanted)
    assert rates.memory_clock_hz == 528_000_000, "a file does not change by itself"
    assert governors(kernel) == before
    assert probe(host, board).rates.memory_clock_hz == 528_000_000
    # A measurement that was cut off had the governor set.
    left = Path(board.workdir / ".rates.governors")
    left.mkdir()
    (left / "governors").write_text(f"simple_ondemand performance {DEVICES}/dmc\n")
    (kernel.devices / "dmc/governor").write_text("performance\n")
    measured_rates(host, board, probe(host, board), Silent(), governor=wanted)
    assert governors(kernel) == ["simple_ondemand", before[1]]
    assert not left.exists()


def test_a_device_or_governor_that_cannot_be_had_is_refused_with_what_there_is(
    tmp_path: Path, board: Board, kernel: Kernel, shell: str
) -> None:
    with board_host(tmp_path / "server", shell, kernel, read_only=True) as host:
        clocks = clocks_of_board(host, board)
        with pytest.raises(BoardError, match="exposes no governor of npu") as caught:
            check_governors(host, "npu=performance", clocks)
        assert caught.value.remedy.endswith("there is: memory, gpu.")
        with pytest.raises(BoardError, match="no frequency governor 'quick' for dmc") as caught:
            check_governors(host, "memory=quick", clocks)
        assert "dmc_ondemand, performance, simple_ondemand" in caught.value.remedy
        with pytest.raises(BoardError, match="governor of dmc is dmc_ondemand, and this user may"):
            check_governors(host, "memory=performance", clocks)
