"""A virtual board is a board: it boots, keeps what is synced, and is never mistaken."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path, PurePosixPath

import psutil
import pytest

from armload.boards.board import SshAddress, VirtualReach
from armload.boards.connect import is_running
from armload.boards.ssh import SshHost
from armload.boards.virtual import machine
from armload.boards.virtual.machine import Qmp
from armload.boards.virtual.process import ssh_answers
from armload.boards.virtual.qemu import qemu_for
from armload.boards.virtual.state import machine_folder, machine_state, socket_path
from armload.boards.virtual.storage import make_disk
from armload.build.helper import RATES, helper
from armload.core import private_programs
from armload.core.errors import ConnectError, DataError
from armload.core.places import data_path
from armload.core.progress import ProgressStep, Silent
from tests.virtual_boards import (
    cut_the_power,
    private_cache,
    switched_off_at_the_end,
    virtual_board,
)

pytestmark = pytest.mark.machine
similar = pytest.mark.exhaustive(covers=["armload/boards/virtual", "deploy/virtual"])

BOARD = virtual_board(
    "test-first",
    VirtualReach(kind="virtual", disk=2 << 30, disk_read_bytes_per_s=20_000_000),
)
SMALL = VirtualReach(kind="virtual", cores=1, memory=512 << 20, disk=256 << 20)


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with private_cache(tmp_path_factory.mktemp("cache")) as folder:
        yield folder


@pytest.fixture(scope="module")
def address(cache: Path) -> Iterator[SshAddress]:
    with switched_off_at_the_end(BOARD):
        yield machine.up(BOARD, Silent())


@pytest.fixture
def host(address: SshAddress) -> Iterator[SshHost]:
    with closing(SshHost(address, BOARD.name)) as connected:
        yield connected


def said(address: SshAddress, command: str) -> str:
    with closing(SshHost(address, "test")) as host:
        done = host.run(command)
    assert done.status == 0, done.stderr
    return done.text


@pytest.mark.exhaustive(covers=["armload/boards/virtual"])
def test_a_port_on_its_own_loopback_is_reached(host: SshHost) -> None:
    with host.forwarded(22) as forward:
        assert ssh_answers(forward.port, 30.0)
    with host.forwarded(23) as forward:
        assert not ssh_answers(forward.port, 30.0)
        forward.check()


def test_it_is_an_arm_machine_with_the_features_of_a_cortex_a55(host: SshHost) -> None:
    assert host.run("uname -m").text == "aarch64"
    cpuinfo = host.run("cat /proc/cpuinfo").text
    assert cpuinfo.count("processor\t:") == 2
    (features,) = {line for line in cpuinfo.splitlines() if line.startswith("Features")}
    assert {"asimddp", "fphp", "asimdhp", "atomics"} <= set(features.split())
    assert not {"i8mm", "bf16", "sve", "asimdfhm"} & set(features.split())


def test_it_has_the_memory_that_its_file_says(host: SshHost) -> None:
    meminfo = host.run("cat /proc/meminfo").text.split()
    total_bytes = int(meminfo[meminfo.index("MemTotal:") + 1]) * 1024
    assert 1.9e9 < total_bytes < 2 << 30


def test_it_has_the_tools_that_it_claims(host: SshHost) -> None:
    claimed = data_path("deploy", "virtual", "toybox.txt").read_text().split()
    assert set(claimed) <= set(host.run("toybox").text.split())
    assert host.run("readlink -f /bin/sh").text == "/usr/bin/mksh"


def test_only_its_data_folder_can_be_written(host: SshHost) -> None:
    assert host.run("touch /usr/x").status != 0
    assert host.run("touch /data/local/tmp/x && echo done >/dev/stderr").stderr == b"done\n"
    mounted = host.run("mount").text
    for place in ("/proc ", "/sys ", "/dev/pts ", "/tmp ", "/data type ext4"):
        assert f" on {place}" in mounted


def test_its_clock_is_right_and_random_numbers_are_there_at_once(host: SshHost) -> None:
    assert abs(int(host.run("date +%s").text) - time.time()) < 5
    assert host.run("head -c 16 /dev/random | wc -c").text == "16"


def test_its_storage_is_not_quicker_than_its_file_says(host: SshHost) -> None:
    size_mb = 40
    command = f"head -c {size_mb}000000 /dev/zero >/data/big && sync"
    assert host.run(command).status == 0
    host.run("echo 3 >/proc/sys/vm/drop_caches")
    began = time.monotonic()
    assert host.run("cat /data/big >/dev/null && rm /data/big").status == 0
    rate = size_mb / (time.monotonic() - began)
    assert rate < 25  # a busy workstation makes it slower, nothing makes it quicker


@pytest.mark.parametrize("size_bytes", [1_000_000, pytest.param(9_000_000, marks=similar)])
def test_a_short_file_is_not_measured_quicker_than_the_storage(
    host: SshHost, size_bytes: int
) -> None:
    program, file = PurePosixPath("/data/rates"), "/data/short"
    host.write(program, [helper(RATES).path.read_bytes()])
    host.run(f"chmod 755 {program} && head -c {size_bytes} /dev/urandom >{file} && sync")
    rates = json.loads(host.run(f"{program} storage {file}").text)
    assert rates["storage_read_bytes_per_s"] < 25e6
    assert rates["storage_other_way_bytes_per_s"] < 25e6


@similar
def test_it_is_told_of_a_full_disk_of_this_machine_instead_of_standing_still(cache: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("a small file system takes root")
    board = virtual_board("test-full", SMALL)
    folder = machine_folder(board)
    folder.mkdir(parents=True)
    small = ["mount", "-t", "tmpfs", "-o", "size=64m", "none", str(folder)]
    subprocess.run(small, check=True)
    try:
        with switched_off_at_the_end(board):
            address = machine.up(board, Silent())
            said(address, "head -c 100000000 /dev/zero >/data/big; sync; sync")
            assert "I/O error" in said(address, "dmesg")
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_it_has_no_sftp_server(address: SshAddress) -> None:
    sftp = shutil.which("sftp")
    if sftp is None:
        pytest.skip("sftp is not installed")
    options = ["StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null"]
    done = subprocess.run(
        [
            *(sftp, "-b", "-", "-P", str(address.port), "-i", str(address.key)),
            *(word for option in options for word in ("-o", option)),
            f"{address.user}@{address.host}",
        ],
        input="ls\n",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0


def test_up_again_changes_nothing(address: SshAddress) -> None:
    assert machine.up(BOARD, Silent()) == address
    assert machine.running(BOARD) == address


def test_its_power_and_network_are_under_control(address: SshAddress, host: SshHost) -> None:
    with Qmp(socket_path(machine_folder(BOARD), "qmp")) as control:
        assert control.execute("query-status")["running"] is True
        control.execute("set_link", {"name": "nic", "up": False})
        control.execute("set_link", {"name": "nic", "up": True})
    assert host.run("echo back").text == "back"


def test_another_machines_key_is_refused(address: SshAddress, tmp_path: Path) -> None:
    from armload.boards.virtual.state import key_pair

    other = key_pair(tmp_path / "other").public
    with (
        closing(SshHost(address.model_copy(update={"host_key": other}), "test")) as host,
        pytest.raises(ConnectError),
    ):
        host.run("true")


@pytest.mark.exhaustive(covers=["armload/boards/virtual"])
def test_machine_started_by_a_program_outlives_it_and_what_is_synced_outlives_a_power_cut() -> None:
    board = virtual_board("test-power", SMALL)
    start = (
        "import sys\n"
        "from armload.boards.board import Board\n"
        "from armload.boards.virtual import machine\n"
        "from armload.core.progress import Silent\n"
        "machine.up(Board.model_validate_json(sys.argv[1]), Silent())\n"
    )
    with switched_off_at_the_end(board):
        subprocess.run([sys.executable, "-c", start, board.model_dump_json()], check=True)
        first = machine.running(board)
        assert first is not None
        boot = said(first, "cat /proc/sys/kernel/random/boot_id")
        said(first, "seq 1 100000 >/data/local/tmp/kept && sync")
        cut_the_power(board)
        assert machine.running(board) is None

        assert first.port is not None
        with socket.create_server((first.host, first.port)) as impostor:
            greeter = threading.Thread(target=greet, args=(impostor,), daemon=True)
            greeter.start()
            assert machine.running(board) is None
            second = machine.up(board, Silent())
            assert second.port != first.port
        assert second.host_key == first.host_key
        assert said(second, "cat /proc/sys/kernel/random/boot_id") != boot
        assert said(second, "wc -l </data/local/tmp/kept").strip() == "100000"

        said(second, "echo unsynced >/data/local/tmp/late")
        assert is_running(board)
        assert machine.down(board)
        assert machine.running(board) is None
        assert is_running(board) is False
        assert not machine.down(board)
        third = machine.up(board, Silent())
        assert said(third, "cat /data/local/tmp/late") == "unsynced"


def greet(impostor: socket.socket) -> None:
    try:
        line, _ = impostor.accept()
    except OSError:
        return
    with line:
        line.sendall(b"SSH-2.0-impostor\r\n")


@similar
def test_two_boards_run_at_once_one_from_a_copied_image_folder(
    address: SshAddress, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree((cache / "images" / "toybox").resolve(), tmp_path / "copied")
    monkeypatch.setenv("ARMLOAD_IMAGES", str(tmp_path / "copied"))
    board = virtual_board("test-second", SMALL)
    with switched_off_at_the_end(board):
        second = machine.up(board, Silent())
        assert second.port != address.port
        assert second.host_key != address.host_key
        assert said(second, "hostname") == "test-second"
        assert said(address, "hostname") == BOARD.name
        powered = machine_state(machine_folder(board))
        assert powered is not None
        assert str(tmp_path / "copied") in " ".join(psutil.Process(powered.process.pid).cmdline())


@similar
def test_two_calls_at_once_start_one_machine() -> None:
    board = virtual_board("test-twice", SMALL)
    found: list[SshAddress] = []
    callers = [
        threading.Thread(target=lambda: found.append(machine.up(board, Silent()))) for _ in range(2)
    ]
    with switched_off_at_the_end(board):
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
        first, second = found
        assert first == second
        assert said(first, "echo up") == "up"


@similar
def test_board_whose_start_was_cut_short_is_waited_for_not_taken_for_ready() -> None:
    board = virtual_board("test-booting", SMALL)
    with switched_off_at_the_end(board):
        with pytest.raises(KeyboardInterrupt):
            machine.up(board, CtrlCWhileBooting())
        assert machine_state(machine_folder(board)) is not None
        assert machine.running(board) is None
        assert said(machine.up(board, Silent()), "echo up") == "up"


class CtrlCWhileBooting(Silent):
    @contextmanager
    def step(
        self, label: str, *, total: float | None = None, unit: str = ""
    ) -> Iterator[ProgressStep]:
        if label.startswith("Booting"):
            assert (total, unit) == (None, ""), "nobody knows how long a boot takes"
            raise KeyboardInterrupt
        with super().step(label, total=total, unit=unit) as step:
            yield step


@pytest.mark.exhaustive(covers=["armload/boards/virtual"])
def test_qemu_whose_start_was_interrupted_does_not_hold_the_disk_for_ever() -> None:
    board = virtual_board("test-forgotten", SMALL)
    with switched_off_at_the_end(board):
        machine.up(board, Silent())
        former = machine_state(machine_folder(board))
        assert former is not None
        (machine_folder(board) / "machine.json").unlink()
        assert said(machine.up(board, Silent()), "echo up") == "up"
        assert not former.process.is_alive()


@similar
def test_board_whose_storage_is_destroyed_says_so_at_once() -> None:
    board = virtual_board("test-broken", SMALL)
    with switched_off_at_the_end(board):
        machine.up(board, Silent())
        machine.down(board)
        with (machine_folder(board) / "disk.img").open("r+b") as disk:
            disk.write(bytes(1 << 20))
        with pytest.raises(ConnectError, match="storage cannot be mounted"):
            machine.up(board, Silent())
        assert machine.running(board) is None


def test_installed_qemu_that_lacks_the_cpu_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "qemu-system-aarch64"
    old.write_text("#!/bin/sh\necho '  cortex-a57'\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert qemu_for("cortex-a57", Silent()).words == (str(old),)
    fetched = qemu_for("cortex-a55", Silent())
    assert str(old) not in fetched.words
    done = subprocess.run([*fetched.words, "-version"], capture_output=True, text=True, check=True)
    assert "QEMU emulator version" in done.stdout


def test_cpu_that_no_qemu_knows_is_told() -> None:
    with pytest.raises(DataError, match="QEMU has no 64-bit CPU 'cortex-a5'"):
        qemu_for("cortex-a5", Silent())


@similar
def test_mke2fs_comes_from_debian_packages_where_it_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(private_programs, "_ALSO_SEARCHED", ())
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # apt is there, mke2fs is not
    monkeypatch.setenv("ARMLOAD_CACHE", str(tmp_path))
    words = private_programs.mke2fs(Silent())
    assert Path(words[-1]).is_relative_to(tmp_path)
    disk = tmp_path / "disk.img"
    make_disk(disk, 256 << 20, words)
    assert disk.read_bytes()[1024 + 56 :][:2] == b"\x53\xef"
