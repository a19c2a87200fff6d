"""What a person is told when hdc does not reach the device, and what breaks on the way."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import psutil
import pytest

from armload.boards.board import Board, HdcReach, load_board
from armload.boards.connect import connect
from armload.boards.device import SLICE_BYTES
from armload.boards.hdc import HdcHost
from armload.boards.probe import probe
from armload.core.errors import ArmloadError, BoardError, ConnectError, MissingToolError
from armload.core.progress import Silent
from tests.devices import Hdc, hdc_device
from tests.waiting import wait_until

KEY = "7001005458323933328a01bce01c3800"


@pytest.fixture
def hdc(tmp_path: Path) -> Iterator[Hdc]:
    with hdc_device(tmp_path / "device") as device:
        yield device


def reach(hdc: Hdc, key: str | None = None) -> HdcReach:
    return HdcReach(kind="hdc", key=key, program=str(hdc.program))


def failure(hdc: Hdc, key: str | None = None) -> ArmloadError:
    with pytest.raises(ArmloadError) as caught:
        HdcHost(reach(hdc, key), "my-board").run("true")
    assert caught.value.message.startswith("my-board: ")
    return caught.value


def test_a_board_of_this_kind_is_reached_by_its_file(
    hdc: Hdc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{hdc.program.parent}:{os.environ['PATH']}")
    (tmp_path / "boards").mkdir()
    (tmp_path / "boards" / "mine.yaml").write_text(
        f"target: rk3568\nreach: {{kind: hdc, key: {KEY}}}\nworkdir: {tmp_path}/work\n"
    )
    board = load_board("mine")
    host = connect(board, Silent())
    transports = {
        transport.purpose: transport.chosen for transport in probe(host, board).transports
    }
    host.close()
    assert transports["commands"] == "hdc shell, framed as text"
    assert transports["bulk data"] == "hdc file send, in slices of 16 MiB"


def test_a_program_that_is_not_there_is_named() -> None:
    with pytest.raises(MissingToolError, match="no-such-hdc cannot be run") as caught:
        HdcHost(HdcReach(kind="hdc", program="no-such-hdc"), "my-board").run("true")
    assert "'program' under 'reach' in boards/my-board.yaml" in caught.value.remedy


def test_no_device_is_said(hdc: Hdc) -> None:
    hdc.has()
    error = failure(hdc)
    assert isinstance(error, ConnectError)
    assert "hdc sees no device" in error.message
    assert "USB debugging" in error.remedy


def test_a_file_that_has_gone_from_the_board_is_said(hdc: Hdc) -> None:
    gone = PurePosixPath("/nowhere/file")
    with pytest.raises(BoardError, match="/nowhere/file is no longer on the board"):
        list(HdcHost(reach(hdc), "my-board")._fetched(gone))


def test_several_devices_are_named_and_a_key_chooses_one(hdc: Hdc) -> None:
    hdc.has(KEY, "192.168.1.7:8710")
    error = failure(hdc)
    assert f"hdc sees 2 devices: {KEY}, 192.168.1.7:8710" in error.message
    assert "'key' under 'reach' in boards/my-board.yaml" in error.remedy
    host = HdcHost(reach(hdc, "192.168.1.7:8710"), "my-board")
    assert host.run("echo in").text == "in"
    host.close()


def test_a_key_that_no_device_has_is_said_with_those_there_are(hdc: Hdc) -> None:
    error = failure(hdc, "other")
    assert "hdc sees no device other" in error.message
    assert KEY in error.remedy


def test_a_device_that_has_not_allowed_us_is_said(hdc: Hdc) -> None:
    hdc.has(KEY, unauthorised=True)
    error = failure(hdc)
    assert "has not allowed this machine" in error.message
    assert "device's screen" in error.remedy


def test_a_server_of_hdcs_own_that_does_not_answer_is_said(hdc: Hdc) -> None:
    hdc.has_no_server()
    error = failure(hdc)
    assert "cannot connect to its own server" in error.message
    assert "hdc kill -r" in error.remedy


def test_output_that_is_no_text_arrives_unchanged(hdc: Hdc) -> None:
    host = HdcHost(reach(hdc), "my-board")
    done = host.run(r"printf 'a\0b\r\n\377'; printf '\0\0' >&2; printf '#exit 9\n'")
    assert (done.status, done.stdout, done.stderr) == (0, b"a\0b\r\n\xff#exit 9\n", b"\0\0")
    assert list(host.stream(r"printf 'a\0b\r\n\377'")) == [("stdout", b"a\0b\r\n\xff")]
    host.close()


def test_a_board_without_base64_is_read_all_the_same(tmp_path: Path) -> None:
    with hdc_device(tmp_path / "device", without=frozenset({"base64", "toybox"})) as hdc:
        host = HdcHost(reach(hdc), "my-board")
        text = "".join(f"{number} \n" for number in range(2000))
        assert host.run("cat", stdin=text.encode()).stdout == text.encode()
        host.close()


def test_nothing_is_left_on_the_board(hdc: Hdc) -> None:
    host = HdcHost(reach(hdc), "my-board")
    host.run("cat; head -c 300000 /dev/zero", stdin=b"some")
    folder = Path(host._folder())
    list(host.stream("echo " + "x" * 2000))
    assert [path.name for path in folder.iterdir()] == ["frame"]
    with pytest.raises(ConnectError):
        list(host.stream("sleep 2", silence_s=0.3))
    host.close()
    assert not folder.exists()


def test_a_closed_connection_ends_its_commands(hdc: Hdc, tmp_path: Path) -> None:
    host = HdcHost(reach(hdc), "my-board")
    words = f"echo $$ >{tmp_path}/pid; while :; do sleep 0.1; done"
    with pytest.raises(ConnectError, match="no data for"):
        list(host.stream(words, silence_s=0.5))
    folder = host._folder()
    host.close()
    wait_until(lambda: not psutil.pid_exists(int((tmp_path / "pid").read_text())))
    wait_until(lambda: not [each for each in command_lines() if str(folder) in each])


def command_lines() -> list[str]:
    return [" ".join(each.info["cmdline"] or ()) for each in psutil.process_iter(["cmdline"])]


def test_a_transfer_that_breaks_goes_on_from_what_arrived(hdc: Hdc, tmp_path: Path) -> None:
    local, remote = tmp_path / "local", PurePosixPath(tmp_path / "it's remote")
    local.write_bytes(os.urandom(SLICE_BYTES + 3_000_000))
    host = HdcHost(reach(hdc), "my-board")
    told: list[int] = []
    host.run("true")
    hdc.has(KEY, cut_after_bytes=10_000_000)
    with pytest.raises(ConnectError, match="Transfer Stop"):
        host.send_file(local, remote, offset_bytes=0, sent=told.append)
    assert told == [0]
    host.send_file(local, remote, offset_bytes=0, sent=told.append)
    assert told[1:] == [0, SLICE_BYTES, SLICE_BYTES + 3_000_000]
    host.send_file(local, remote, offset_bytes=1_000_000, sent=told.append)
    assert Path(remote).read_bytes() == local.read_bytes()
    assert b"".join(host.read(remote)) == local.read_bytes()
    host.close()


def test_a_device_that_is_pulled_out_meanwhile_is_a_broken_line(hdc: Hdc, tmp_path: Path) -> None:
    host = HdcHost(reach(hdc), "my-board")
    assert host.run("echo in").text == "in"
    with pytest.raises(ConnectError, match="dropped during a command"):
        host.run("kill -9 $PPID")
    hdc.has()
    with pytest.raises(ConnectError, match="sees no device"):
        host.run("echo in")
    hdc.has(KEY)
    assert host.run("echo again").text == "again"
    host.close()


def test_a_board_that_gives_no_folder_is_said(hdc: Hdc) -> None:
    hdc.has(KEY, path="/nowhere")
    assert isinstance(failure(hdc), BoardError)


def test_a_board_file_may_leave_out_key_and_program() -> None:
    values = {"name": "b", "target": "rk3568", "reach": {"kind": "hdc"}, "workdir": "/data/x"}
    assert Board.model_validate(values).reach == HdcReach(kind="hdc", key=None, program="hdc")
