"""Virtual boards that run are never freed, nor what they run with."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from armload.boards.virtual.cached import board_kinds
from armload.boards.virtual.process import Started
from armload.boards.virtual.state import MachineState, keep
from armload.core.cache import decide
from tests.containers import contained, told_by
from tests.unit.builds import held_elsewhere
from tests.waiting import wait_until


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    cache = tmp_path / "cache"
    monkeypatch.setenv("ARMLOAD_CACHE", str(cache))
    for folder in ("packages/qemu", "images/toybox", "machines/a-1-1"):
        (cache / folder).mkdir(parents=True)
    (cache / "packages" / "lock").touch()
    (cache / "machines" / "a-1-1" / "lock").touch()
    return cache


def fates() -> dict[str, str]:
    return {decision.item.paths[0].name: decision.fate for decision in decide(board_kinds())}


def test_everything_may_go_while_nothing_runs() -> None:
    assert fates() == dict.fromkeys(("qemu", "toybox", "a-1-1"), "goes")


def test_nothing_may_go_while_a_board_runs_save_other_boards(cache: Path) -> None:
    other = cache / "machines" / "b-1-1"
    other.mkdir()
    process = Started.of(os.getpid())
    assert process is not None
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        keep(cache / "machines" / "a-1-1", MachineState(process=process, port=port, answered=True))
        running = dict.fromkeys(("qemu", "toybox", "a-1-1"), "in use")
        assert fates() == {**running, "b-1-1": "goes"}


def test_what_a_board_runs_with_is_held_by_it_or_by_one_that_is_being_started(
    cache: Path,
) -> None:
    other = cache / "machines" / "b-1-1"
    other.mkdir()
    (other / "lock").touch()

    def reasons() -> set[str]:
        found = {each.item.paths[0].name: each.reason for each in decide(board_kinds())}
        return {found["qemu"], found["toybox"]}

    with held_elsewhere(other / "lock"):
        assert reasons() == {"b-1-1 is being started"}
    process = Started.of(os.getpid())
    assert process is not None
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        folder = cache / "machines" / "a-1-1"
        keep(folder, MachineState(process=process, port=port, answered=True))
        assert reasons() == {"a-1-1 is using it"}


def test_a_board_whose_start_nobody_noted_counts_as_running(cache: Path) -> None:
    folder = cache / "machines" / "a-1-1"
    code = "print('up', flush=True); import sys; sys.stdin.read()"
    command = [sys.executable, "-c", code, f"-pidfile={folder / 'qemu.pid'}"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        (folder / "qemu.pid").write_text(f"{process.pid}\n")
        assert fates()["a-1-1"] == "in use"
        process.kill()
        process.wait()
    assert fates()["a-1-1"] == "goes"


_LIKE_QEMU = """
import fcntl, os, struct, sys
disk = open(sys.argv[1], "rb+")
lock = struct.pack("hhqqi4x", fcntl.F_RDLCK, os.SEEK_SET, 100, 1, 0)
fcntl.fcntl(disk, fcntl.F_OFD_SETLK, lock)
print("on", flush=True)
sys.stdin.read()
"""


def test_a_board_that_runs_in_another_container_stays(cache: Path) -> None:
    folder = cache / "machines" / "a-1-1"
    (folder / "disk.img").touch()
    assert fates()["a-1-1"] == "goes"
    with contained(_LIKE_QEMU, str(folder / "disk.img")) as machine:
        assert told_by(machine) == "on"
        assert fates()["a-1-1"] == "in use"
        assert fates()["toybox"] == "in use"
    wait_until(lambda: fates()["a-1-1"] == "goes")


@pytest.mark.parametrize("content", ["", "x", "-1", "of another", "9" * 30])
def test_a_number_that_is_no_longer_the_boards_own_does_not_count(
    cache: Path, content: str
) -> None:
    number = content.replace("of another", str(os.getpid()))
    (cache / "machines" / "a-1-1" / "qemu.pid").write_text(number)
    assert fates()["a-1-1"] == "goes"


def test_a_board_that_is_being_started_stays_with_what_it_starts_from(cache: Path) -> None:
    with held_elsewhere(cache / "machines" / "a-1-1" / "lock"):
        assert set(fates().values()) == {"in use"}


def test_packages_that_are_being_fetched_stay(cache: Path) -> None:
    with held_elsewhere(cache / "packages" / "lock"):
        found = fates()
    assert (found["qemu"], found["toybox"], found["a-1-1"]) == ("in use", "in use", "goes")
