from pathlib import Path

import pytest

from armload.boards.board import VirtualReach
from armload.boards.virtual.image import image_for_boards
from armload.boards.virtual.machine import Qmp
from armload.boards.virtual.qemu import (
    Qemu,
    Wiring,
    command_line,
    cpus_listed,
    knows_cpu,
    start,
)
from armload.boards.virtual.storage import make_disk
from armload.core.errors import BoardError, ConnectError, DataError, MissingToolError
from armload.core.packages import updated_apt
from armload.core.private_programs import mke2fs, private_program
from armload.core.progress import Silent


def wiring(folder: Path) -> Wiring:
    return Wiring(
        kernel=folder / "kernel",
        initramfs=folder / "initramfs.cpio",
        disk=folder / "disk.img",
        port=4022,
        qmp=folder / "qmp",
        console=folder / "console",
        console_log=folder / "console.log",
        qemu_log=folder / "qemu.log",
        pid_file=folder / "qemu.pid",
    )


def words(reach: VirtualReach, folder: Path = Path("/machine")) -> list[str]:
    return command_line(Qemu(words=("qemu",)), reach, wiring(folder), "b")


def option(line: list[str], name: str) -> str:
    return line[line.index(name) + 1]


def test_machine_is_what_the_boards_file_says() -> None:
    line = words(VirtualReach(kind="virtual", cpu="cortex-a72", cores=4, memory=512 << 20))
    assert option(line, "-cpu") == "cortex-a72"
    assert option(line, "-smp") == "4"
    assert option(line, "-m") == "512M"


def test_storage_is_slowed_only_when_the_boards_file_says_so() -> None:
    slow = words(VirtualReach(kind="virtual", disk_read_bytes_per_s=165_000_000))
    assert "throttling.bps-read=165000000" in option(slow, "-drive")
    assert "throttling" not in option(words(VirtualReach(kind="virtual")), "-drive")


def test_only_this_machine_itself_reaches_the_machine_and_the_machine_reaches_nothing() -> None:
    network = option(words(VirtualReach(kind="virtual")), "-netdev").split(",")
    assert "restrict=on" in network
    assert [word for word in network if word.startswith("hostfwd=")] == [
        "hostfwd=tcp:127.0.0.1:4022-10.0.2.15:22"
    ]


def test_comma_in_a_path_stays_a_comma() -> None:
    line = words(VirtualReach(kind="virtual"), Path("/a,b"))
    assert "file=/a,,b/disk.img" in option(line, "-drive")
    assert "path=/a,,b/console," in option(line, "-chardev")


def test_missing_image_folder_is_a_data_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARMLOAD_IMAGES", str(tmp_path / "none"))
    with pytest.raises(DataError, match=r"not an image folder: it has no file kernel"):
        image_for_boards(Silent())


def test_damaged_image_is_a_data_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARMLOAD_IMAGES", str(tmp_path))
    (tmp_path / "kernel").write_bytes(b"kernel")
    (tmp_path / "base.cpio").write_bytes(b"070701 and then cut short")
    with pytest.raises(DataError, match="damaged"):
        image_for_boards(Silent())


def test_machine_without_apt_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("ARMLOAD_CACHE", str(tmp_path))
    monkeypatch.delenv("ARMLOAD_IMAGES", raising=False)
    with (
        pytest.raises(MissingToolError) as caught,
        updated_apt("arm64", Silent(), purpose="a test"),
    ):
        pass
    assert "ARMLOAD_IMAGES" in caught.value.remedy
    with pytest.raises(MissingToolError, match="apt-get is not installed"):
        image_for_boards(Silent())


def test_damaged_program_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(MissingToolError, match="damaged"):
        private_program(tmp_path, "qemu-system-aarch64")


def test_control_socket_that_nobody_serves_is_told(tmp_path: Path) -> None:
    with pytest.raises(BoardError, match="does not answer"):
        Qmp(tmp_path / "none")


def test_disk_is_an_ext4_file_system_that_takes_no_room_yet(tmp_path: Path) -> None:
    disk = tmp_path / "disk.img"
    make_disk(disk, 4 << 30, mke2fs(Silent()))
    with disk.open("rb") as file:
        file.seek(1024 + 56)
        assert file.read(2) == b"\x53\xef"
    assert disk.stat().st_size == 4 << 30
    assert disk.stat().st_blocks * 512 < 64 << 20


def test_disk_that_is_too_small_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(MissingToolError, match="mke2fs could not make"):
        make_disk(tmp_path / "disk.img", 1000, mke2fs(Silent()))
    assert list(tmp_path.iterdir()) == []


def program(folder: Path, script: str) -> Qemu:
    path = folder / "qemu"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return Qemu(words=(str(path),))


@pytest.mark.parametrize("where", ['"$1"', "/dev/stderr"])
def test_why_qemu_does_not_start_is_told_wherever_it_says_so(tmp_path: Path, where: str) -> None:
    log = tmp_path / "qemu.log"
    log.write_text("words of an earlier start\n")
    qemu = program(tmp_path, f"echo 'cannot set up guest memory' >> {where}; exit 1")
    with pytest.raises(ConnectError, match="did not start") as caught:
        start(qemu, [*qemu.words, str(log)], log)
    assert caught.value.message == "QEMU did not start: cannot set up guest memory"
    assert "'reach' in the board's file" in caught.value.remedy


def test_the_cpus_that_qemu_knows_are_named_with_the_likeliest_first(tmp_path: Path) -> None:
    qemu = program(tmp_path, "printf 'CPUs:\\n  cortex-a9\\n  max\\n  cortex-a55 (new)\\n  sa1\\n'")
    assert cpus_listed(qemu, "cortex-a555") == "It knows cortex-a55, max."


def test_32_bit_cpus_are_refused(tmp_path: Path) -> None:
    names = "arm926 cortex-a9 cortex-a15 cortex-m33 cortex-r52 pxa255 sa1100 ti925t"
    more = "cortex-a35 cortex-a72 cortex-a710 a64fx neoverse-n1 max"
    qemu = program(tmp_path, f"printf 'CPUs:\\n'; printf '  %s\\n' {names} {more}")
    assert not [each for each in names.split() if knows_cpu(qemu, each)]
    assert [each for each in more.split() if knows_cpu(qemu, each)] == more.split()
