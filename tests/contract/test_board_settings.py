"""What a run changes on a board, and gives back: governors, the page cache; and waiting for cold.

The kernel's files are ours here: each shell sees a folder of this test in their place.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath

import pytest

from armload.bench.measures import read_cache, read_governor
from armload.bench.plan import Plan
from armload.bench.setting import Setting, Wish, set_up
from armload.boards.board import Board
from armload.boards.conditions import ClusterState, Sensor
from armload.boards.cooling import cool_down
from armload.boards.host import Host
from armload.boards.probe import probe
from armload.boards.ssh import SshHost
from armload.core.errors import BoardError
from armload.core.progress import Silent
from armload.deploy.collect import collect
from armload.deploy.follow import CutShortError, end_orphan, follow, stop
from armload.deploy.governor import check_governor
from armload.deploy.launch import Beforehand, launch
from armload.deploy.layout import Layout
from tests.servers import dropbear

SHELLS = ("mksh", "busybox", "dash")
CPUS, ZONES = "/sys/devices/system/cpu", "/sys/class/thermal"
DROP_CACHES = "/proc/sys/vm/drop_caches"


class Kernel:
    """Files that stand for the kernel's.

    Attributes:
        over: where a shell is to see them.
    """

    def __init__(self, folder: Path) -> None:
        self._cpus, self._zones = folder / "cpu", folder / "thermal"
        self.drop_caches = folder / "drop_caches"
        for path in (self._cpus, self._zones):
            path.mkdir(parents=True)
        self.drop_caches.write_text("0\n")
        self.over: Mapping[str, Path] = {
            CPUS: self._cpus,
            ZONES: self._zones,
            DROP_CACHES: self.drop_caches,
        }

    def has_policy(self, place: str, cores: str, governor: str, khz: int, max_khz: int) -> None:
        folder = self._cpus / place
        folder.mkdir(parents=True)
        for name, content in (
            ("affected_cpus", cores),
            ("scaling_governor", governor),
            ("scaling_available_governors", "schedutil performance powersave "),
            ("scaling_cur_freq", str(khz)),
            ("cpuinfo_max_freq", str(max_khz)),
        ):
            (folder / name).write_text(f"{content}\n")

    def shows_again(self, place: str, where: str) -> None:
        path = self._cpus / place
        path.parent.mkdir()
        path.symlink_to(where)

    def governors(self) -> list[str]:
        paths = sorted(self._cpus.rglob("scaling_governor"))
        return [path.read_text().strip() for path in paths]

    def shows(self, zone: int, name: str, text: str) -> None:
        folder = self._zones / f"thermal_zone{zone}"
        folder.mkdir(exist_ok=True)
        (folder / "type").write_text(f"{name}\n")
        (folder / "temp").write_text(text)


@pytest.fixture(scope="session", params=SHELLS)
def shell(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@contextlib.contextmanager
def board_host(
    folder: Path,
    shell: str,
    kernel: Kernel,
    *,
    read_only: bool = False,
    without: frozenset[str] = frozenset(),
) -> Iterator[Host]:
    tools = "busybox" if shell == "busybox" else "toybox"
    with dropbear(
        folder,
        shell=shell,
        tools=tools,
        over=kernel.over,
        read_only=read_only,
        without=without,
    ) as address:
        host = SshHost(address, "bench-board")
        try:
            yield host
        finally:
            host.close()


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    made = Kernel(tmp_path / "kernel")
    made.has_policy("cpufreq/policy0", "0 1", "schedutil", 408_000, 1_800_000)
    made.has_policy("cpufreq/policy2", "2", "powersave", 600_000, 2_400_000)
    return made


@pytest.fixture
def host(tmp_path: Path, shell: str, kernel: Kernel) -> Iterator[Host]:
    with board_host(tmp_path / "server", shell, kernel) as connected:
        yield connected


@pytest.fixture
def board(tmp_path: Path) -> Board:
    return Board.model_validate(
        {
            "name": "bench-board",
            "target": "rk3568",
            "reach": {"kind": "ssh", "host": "unused"},
            "workdir": str(tmp_path / "work dir's $(id)"),
        }
    )


def launched(
    host: Host, board: Board, beforehand: Beforehand, *argv: str, name: str = "run"
) -> PurePosixPath:
    folder = Layout(workdir=board.workdir).run(name)
    launch(
        host,
        run_folder=folder,
        argv=argv,
        trace=False,
        time_limit_s=60,
        job=b"{}",
        beforehand=beforehand,
    )
    return folder


def ran(host: Host, board: Board, beforehand: Beforehand, local: Path, *argv: str) -> Path:
    folder = launched(host, board, beforehand, *argv, name=local.name)
    assert follow(host, folder, lambda steps, text: None) == 0
    collect(host, folder, local)
    return local


def setting(host: Host, board: Board, plan: Plan, wish: Wish, model: PurePosixPath) -> Setting:
    found = probe(host, board)
    return set_up(host, board, plan, wish, found=found, model=model, progress=Silent())


PERFORMANCE = Beforehand(governor="performance")


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
        Sensor(name="soc-thermal", celsius=41.875),
        Sensor(name="gpu thermal", celsius=43.125),
        Sensor(name="package", celsius=39),
    }
    assert now.celsius == 43.125


def test_a_run_has_its_governor_and_the_board_its_own_again(
    host: Host, board: Board, kernel: Kernel, tmp_path: Path
) -> None:
    check_governor(host, "performance")
    assert kernel.governors() == ["schedutil", "powersave"]
    look = f"cat {CPUS}/cpufreq/policy*/scaling_governor"
    local = ran(host, board, PERFORMANCE, tmp_path / "run", "sh", "-c", look)
    assert (local / "stdout").read_text().split() == ["performance", "performance"]
    assert read_governor(local) == "performance"
    assert kernel.governors() == ["schedutil", "powersave"]


def test_governors_come_back_after_a_program_that_fails_is_stopped_or_not_there(
    host: Host, board: Board, kernel: Kernel
) -> None:
    failing = launched(host, board, PERFORMANCE, "false", name="failing")
    assert follow(host, failing, lambda steps, text: None) == 1
    assert kernel.governors() == ["schedutil", "powersave"]
    absent = launched(host, board, PERFORMANCE, "/no/such/program", name="absent")
    assert follow(host, absent, lambda steps, text: None) == 127
    assert kernel.governors() == ["schedutil", "powersave"]
    stopped = launched(host, board, PERFORMANCE, "sleep", "600", name="stopped")
    wait_for(lambda: kernel.governors() == ["performance", "performance"])
    stop(host, stopped)
    assert kernel.governors() == ["schedutil", "powersave"]


def test_governors_come_back_when_nobody_is_there_any_more(
    host: Host, board: Board, kernel: Kernel
) -> None:
    folder = launched(host, board, PERFORMANCE, "sleep", "1")
    host.close()
    wait_for(lambda: Path(folder / "exit").exists())
    assert kernel.governors() == ["schedutil", "powersave"]


def test_governors_come_back_with_the_end_of_a_run_that_lost_its_script(
    host: Host, board: Board, kernel: Kernel
) -> None:
    folder = launched(host, board, PERFORMANCE, "sleep", "600")
    wait_for(lambda: Path(folder / "pid").exists() and Path(folder / "pid").read_text() != "")
    os.kill(int(Path(folder / "wrapper").read_text()), signal.SIGKILL)
    with pytest.raises(CutShortError):
        follow(host, folder, lambda steps, text: None)
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
        local = ran(host, board, PERFORMANCE, tmp_path / "run", "sh", "-c", look)
        assert (local / "stdout").read_text().split() == ["performance", "performance"]
        assert kernel.governors() == ["ondemand"]


def test_a_governor_that_cannot_be_had_is_refused_in_words(
    tmp_path: Path, kernel: Kernel, shell: str
) -> None:
    with board_host(tmp_path / "server", shell, kernel, read_only=True) as host:
        with pytest.raises(BoardError, match="schedutil, and this user may not change it"):
            check_governor(host, "performance")
        with pytest.raises(BoardError, match="no governor 'quick'") as caught:
            check_governor(host, "quick")
        assert "performance, powersave, schedutil" in caught.value.remedy
    bare = Kernel(tmp_path / "bare")
    with (
        board_host(tmp_path / "bare-server", shell, bare) as host,
        pytest.raises(BoardError, match="shows no frequency governors"),
    ):
        check_governor(host, "performance")


def test_a_hot_board_is_waited_for(host: Host, kernel: Kernel) -> None:
    kernel.shows(0, "soc-thermal", "61000\n")
    kernel.shows(1, "ddr", "40000\n")
    notes: list[str] = []

    class Shown(Silent):
        @contextlib.contextmanager
        def step(
            self, label: str, *, total: float | None = None, unit: str = ""
        ) -> Iterator[Noted]:
            notes.append(label)
            assert (total, unit) == (6, "degrees")
            yield Noted()

    class Noted:
        def update(self, completed: float, *, total: float | None = None, note: str = "") -> None:
            notes.append(f"{completed:g} {note.partition(',')[0]}")
            kernel.shows(0, "soc-thermal", "58000\n" if completed == 0 else "55000\n")

    assert cool_down(host, 55, Shown(), every_s=0.01) == 55
    assert notes == ["Cooling bench-board to 55 °C", "0 61.0 °C", "3 58.0 °C"]
    assert cool_down(host, 55, Shown(), every_s=0.01) == 55
    assert len(notes) == 3


def test_a_board_that_stays_hot_or_has_no_sensor_is_told_in_words(
    host: Host, kernel: Kernel
) -> None:
    with pytest.raises(BoardError, match="shows no temperature"):
        cool_down(host, 55, Silent())
    kernel.shows(0, "soc-thermal", "61000\n")
    with pytest.raises(BoardError, match=r"still at 61\.0 °C after 0 s") as caught:
        cool_down(host, 55, Silent(), limit_s=0.1, every_s=0.05)
    assert "--cool-to" in caught.value.remedy


def test_a_cold_run_lets_the_board_forget_its_files(
    host: Host, board: Board, kernel: Kernel, tmp_path: Path
) -> None:
    model = PurePosixPath(tmp_path / "m.gguf")
    Path(model).write_bytes(os.urandom(1_000_000))
    ready = setting(host, board, Plan(cold=True), Wish(), model)
    local = ran(host, board, ready.beforehand, tmp_path / "run", "true")
    assert read_cache(local) == "dropped"
    assert kernel.drop_caches.read_text() == "3\n"
    warm = setting(host, board, Plan(), Wish(), model)
    assert read_cache(ran(host, board, warm.beforehand, tmp_path / "warm", "true")) is None


def test_where_not_all_may_be_forgotten_the_model_is(
    tmp_path: Path, board: Board, kernel: Kernel, shell: str
) -> None:
    path = tmp_path / "a model's $(id).gguf"
    path.write_bytes(os.urandom(3_000_000))
    with board_host(tmp_path / "server", shell, kernel, read_only=True) as host:
        ready = setting(host, board, Plan(cold=True), Wish(), PurePosixPath(path))
        local = ran(host, board, ready.beforehand, tmp_path / "evicted", "true")
        assert read_cache(local) == "evicted"
        assert kernel.drop_caches.read_text() == "0\n"
        path.unlink()
        gone = ran(host, board, ready.beforehand, tmp_path / "gone", "true")
        assert read_cache(gone) == "as found"


def test_a_board_without_taskset_gets_a_program_of_ours(
    tmp_path: Path, board: Board, kernel: Kernel, shell: str
) -> None:
    without = frozenset({"taskset"})
    model = PurePosixPath(tmp_path / "m.gguf")
    Path(model).write_bytes(os.urandom(1_000_000))
    with board_host(tmp_path / "server", shell, kernel, without=without) as host:
        ready = setting(host, board, Plan(cpus="0"), Wish(), model)
        assert ready.before_program[0].endswith("/pin")
        words = (*ready.before_program, "grep", "Cpus_allowed_list", "/proc/self/status")
        local = ran(host, board, ready.beforehand, tmp_path / "run", *words)
        assert (local / "stdout").read_text().split() == ["Cpus_allowed_list:", "0"]


def wait_for(condition: Callable[[], bool]) -> None:
    for _ in range(600):
        if condition():
            return
        time.sleep(0.05)
    pytest.fail("it never came to that")
