"""A virtual board that goes off while it is used: said at once, and never of one that reboots."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path, PurePosixPath

import psutil
import pytest

from armload.boards.board import Board, VirtualReach
from armload.boards.connect import connect
from armload.boards.failures import PoweredOffError
from armload.boards.virtual import machine
from armload.boards.virtual.machine import Qmp
from armload.boards.virtual.state import machine_folder, socket_path
from armload.core.files import sha256_of
from armload.core.progress import Silent
from armload.deploy.follow import follow
from armload.deploy.launch import launch
from armload.deploy.layout import Layout
from armload.deploy.retry import RETRY_FOR_S, with_retries
from armload.deploy.transfer import push
from tests.faults import At
from tests.person import Person
from tests.system.people import power_cut
from tests.virtual_boards import (
    cut_the_power,
    private_cache,
    switched_off_at_the_end,
    virtual_board,
)
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.machine,
    pytest.mark.exhaustive(covers=["armload/boards", "armload/cli/verbs", "armload/deploy"]),
]

REACH = VirtualReach(kind="virtual", cores=1, memory=512 << 20, disk=256 << 20)
IS_OFF = r"^The virtual board 'test-off' is off\.\n"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with private_cache(tmp_path_factory.mktemp("cache")) as folder:
        yield folder


@pytest.fixture
def board(cache: Path) -> Iterator[Board]:
    board = virtual_board("test-off", REACH)
    with switched_off_at_the_end(board):
        yield board


def test_whoever_would_wait_for_a_board_that_went_off_is_told_at_once(board: Board) -> None:
    with closing(connect(board, Silent())) as host:
        assert host.run("echo in").text == "in"
        cut_the_power(board)
        with pytest.raises(PoweredOffError, match=IS_OFF) as caught:
            host.run("true")
        assert "armload board.up --board test-off" in caught.value.remedy
        began = time.monotonic()
        for waits in (
            lambda: with_retries(lambda: host.run("true")),
            lambda: follow(host, PurePosixPath("/data/runs/x"), lambda now: None),
            lambda: launch(
                host,
                run_folder=board.workdir / "runs" / "x",
                argv=["true"],
                trace=False,
                time_limit_s=9,
                job=b"{}",
            ),
        ):
            with pytest.raises(PoweredOffError, match=IS_OFF):
                waits()
        assert time.monotonic() - began < RETRY_FOR_S / 2
        again = machine.up(board, Silent())
        assert again.port is not None
        with pytest.raises(PoweredOffError, match="was restarted"):
            with_retries(lambda: host.run("true"))


def test_a_copy_to_a_board_that_goes_off_in_the_middle_is_told_so(
    board: Board, tmp_path: Path
) -> None:
    local = tmp_path / "model.gguf"
    local.write_bytes(os.urandom(30_000_000))
    progress = At(10_000_000, lambda: cut_the_power(board))
    layout = Layout(workdir=board.workdir)
    remote = layout.model("0" * 64, local.name)
    with closing(connect(board, Silent())) as host, pytest.raises(PoweredOffError, match=IS_OFF):
        push(
            host,
            layout,
            local,
            remote,
            sha256=sha256_of(local),
            executable=False,
            progress=progress,
        )


def test_a_board_that_reboots_is_waited_for(board: Board) -> None:
    boot_id = "cat /proc/sys/kernel/random/boot_id"
    with closing(connect(board, Silent())) as host:
        before = host.run(boot_id).text
        with Qmp(socket_path(machine_folder(board), "qmp")) as control:
            control.execute("system_reset")
        after = before
        while after == before:  # the connection may drop a moment after the machine is told to
            after = with_retries(lambda: host.run(boot_id)).text
        assert len(after) == len(before)


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    somebody = Person(tmp_path_factory.mktemp("person"))
    yield somebody
    somebody.types("board.down", "--board", "mine", "--yes")


@pytest.mark.parametrize("verb", ["bench", "deploy", "pull", "board.probe"])
def test_each_verb_names_the_board_that_went_off_and_how_it_is_switched_on(
    person: Person, verb: str
) -> None:
    """The machine is stopped until the verb has asked it something, and then loses its power."""
    shown = json.loads(person.types("board.up", "--board", "mine", "--json").stdout)
    (pid_file,) = (person.folder / "cache" / "machines").glob("mine-*/qemu.pid")
    os.kill(int(pid_file.read_text()), signal.SIGSTOP)
    process = person.start(verb, "--board", "mine")
    wait_until(lambda: is_connected(process.pid, shown["port"]), process)
    power_cut(person)
    _, err = process.communicate(timeout=RETRY_FOR_S / 2)
    assert process.returncode == 6, err
    assert "The virtual board 'mine' is off." in err
    assert "armload board.up --board mine" in " ".join(err.split())
    assert "Traceback" not in err


def is_connected(pid: int, port: int) -> bool:
    lines = psutil.Process(pid).net_connections(kind="tcp")
    return any(line.raddr and line.raddr.port == port for line in lines)


@pytest.mark.build
def test_a_board_that_somebody_stops_is_not_started_again_by_who_follows_a_run(
    person: Person,
) -> None:
    person.types("bench", "--board", "mine", "-n", "2")  # what it needs is there then
    process = person.start("bench", "--board", "mine", "-n", "2000", "--repeats", "1")
    pattern = "ls /data/local/tmp/armload/runs/*/trace.jsonl | wc -l"
    before = int(person.on_board(pattern))
    wait_until(lambda: int(person.on_board(pattern)) > before, process)
    person.types("board.down", "--board", "mine", "--yes")
    _, err = process.communicate(timeout=RETRY_FOR_S)
    assert process.returncode == 6, err
    assert "The virtual board 'mine' was stopped with board.down." in " ".join(err.split())
    assert person.machine() is None
