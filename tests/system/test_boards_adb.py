"""Boards behind the real ``adb``: what a person is told, and what breaks on the way."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path, PurePosixPath

import pytest

from armload.boards.adb import AdbHost
from armload.boards.board import AdbReach, load_board
from armload.boards.connect import connect
from armload.boards.device import SLICE_BYTES
from armload.boards.probe import probe
from armload.core.errors import ArmloadError, BoardError, ConnectError, DataError, MissingToolError
from armload.core.progress import Silent
from tests.adb_stand_in import AdbDevice
from tests.devices import Adb, adb_device
from tests.services import Echo, echoed, service
from tests.waiting import wait_until


@pytest.fixture(params=["first", "second"])
def adb(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Adb]:
    """With a device that knows only the first shell protocol, and with one that knows both."""
    with adb_device(tmp_path / "device", second_protocol=request.param == "second") as attached:
        yield attached


@pytest.fixture
def current(tmp_path: Path) -> Iterator[Adb]:
    with adb_device(tmp_path / "device") as attached:
        yield attached


def reached(serial: str | None = None) -> AdbHost:
    return AdbHost(AdbReach(kind="adb", serial=serial), "my-board")


def failure(serial: str | None = None) -> ArmloadError:
    with pytest.raises(ArmloadError) as caught, closing(reached(serial)) as host:
        host.run("true")
    assert caught.value.message.startswith("my-board: ")
    return caught.value


def test_status_and_streams_are_told_apart_in_both_protocols(adb: Adb) -> None:
    with closing(reached()) as host:
        done = host.run(r"cat; printf 'a\0b\r\n\377'; echo no >&2; exit 255", stdin=b"in\0\n")
        assert (done.status, done.stderr) == (255, b"no\n")
        assert done.stdout == b"in\0\na\0b\r\n\xff"
        assert host.run("sh -c 'kill -9 $$'").status == 137
        assert list(host.stream("printf '1\\r\\n'")) == [("stdout", b"1\r\n")]


def test_a_board_file_needs_nothing_but_the_kind(
    current: Adb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "boards").mkdir()
    file = tmp_path / "boards" / "phone.yaml"
    file.write_text("target: rk3568\nreach: {kind: adb}\n")
    board = load_board("phone")
    assert board.workdir == PurePosixPath("/data/local/tmp/armload")
    with closing(connect(board, Silent())) as host:
        transports = {
            transport.purpose: transport.chosen for transport in probe(host, board).transports
        }
    assert transports["bulk data"] == "adb push, in slices of 16 MiB"
    assert transports["port forwarding"] == "adb forward"
    for folder in ("/sdcard/armload", "/storage/emulated/0/armload"):
        file.write_text(f"target: rk3568\nreach: {{kind: adb}}\nworkdir: {folder}\n")
        with pytest.raises(DataError, match=r"shared storage.*use a folder in /data/local/tmp"):
            load_board("phone")


def test_a_program_is_executable_once_it_is_made_so(adb: Adb, tmp_path: Path) -> None:
    program, remote = tmp_path / "program", PurePosixPath(tmp_path / "it's remote")
    program.write_bytes(b"#!/bin/sh\necho ran\n")
    with closing(reached()) as host:
        host.send_file(program, remote, offset_bytes=0, sent=lambda _: None)
        made = host.run(f'chmod 755 "{remote}" && "{remote}"')
        assert made.text == "ran"


def test_several_devices_are_named_and_a_serial_chooses_one(current: Adb) -> None:
    other = AdbDevice(current.device.tools)
    current.attach(other)
    serial = f"127.0.0.1:{other.port}"
    error = failure()
    assert "adb sees several devices: " in error.message
    assert current.serial in error.message
    assert serial in error.message
    assert "'serial' under 'reach' in boards/my-board.yaml" in error.remedy
    for chosen in (serial, current.serial):
        with closing(reached(chosen)) as host:
            assert host.run("echo in").text == "in"
    other.close()


def test_no_device_and_another_device_are_said(current: Adb) -> None:
    error = failure("other")
    assert "adb sees no device other" in error.message
    assert current.serial in error.remedy
    current.detach()
    error = failure()
    assert isinstance(error, ConnectError)
    assert "adb sees no device." in error.message
    assert "USB debugging" in error.remedy


def test_a_program_that_is_not_there_is_named() -> None:
    with pytest.raises(MissingToolError, match="no-such-adb cannot be run") as caught:
        AdbHost(AdbReach(kind="adb", program="no-such-adb"), "my-board").run("true")
    assert "platform tools" in caught.value.remedy


def test_a_transfer_that_breaks_is_reported_and_repeated(current: Adb, tmp_path: Path) -> None:
    local, remote = tmp_path / "local", PurePosixPath(tmp_path / "remote")
    local.write_bytes(os.urandom(SLICE_BYTES + 3_000_000))
    told: list[int] = []
    with closing(reached(current.serial)) as host:
        host.run("true")
        current.device.cut_after_bytes = 5_000_000
        with pytest.raises(ConnectError):
            host.send_file(local, remote, offset_bytes=0, sent=told.append)
        assert told == [0]
        current.detach()
        current.attach()
        host.send_file(local, remote, offset_bytes=0, sent=told.append)
        assert told[1:] == [0, SLICE_BYTES, SLICE_BYTES + 3_000_000]
        assert Path(remote).read_bytes() == local.read_bytes()
        assert b"".join(host.read(remote)) == local.read_bytes()


def test_a_file_that_cannot_be_written_is_said(current: Adb) -> None:
    with closing(reached()) as host, pytest.raises(BoardError, match="cannot be written"):
        host.write(PurePosixPath("/proc/nothing"), [b"x"])


def test_a_port_is_reached_again_when_the_device_was_away(current: Adb) -> None:
    with (
        service(Echo) as port,
        closing(reached(current.serial)) as host,
        host.forwarded(port) as forward,
    ):
        assert echoed(forward.port, b"here") == b"here"
        current.detach()
        assert echoed(forward.port, b"gone") == b""
        with pytest.raises(ConnectError, match="adb"):
            forward.check()
        current.attach()
        wait_until(lambda: echoed(forward.port, b"back") == b"back", within_s=10)
    assert not current.call("forward", "--list").strip()
