"""A service that ended while nobody looked is reported once, on every kind of host."""

from __future__ import annotations

import subprocess
from pathlib import Path, PurePosixPath

import pytest

from armload.boards.board import Board, load_board
from armload.boards.host import Host
from armload.boards.virtual.process import Started
from armload.core.progress import Silent
from armload.deploy import launch as launching
from armload.deploy.board_runs import list_runs
from armload.deploy.follow import stop
from armload.deploy.holder import LeaseHolder, this_process
from armload.deploy.launch import ServiceOptions
from armload.runs.api_keys import keep_key, key_file
from armload.runs.board_services import report_ended_services
from tests.contract.launching import launched, waiting_for
from tests.waiting import wait_until


class Heard(Silent):
    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


def a_command_that_has_ended() -> LeaseHolder:
    command = subprocess.Popen(["sleep", "600"])
    process = Started.of(command.pid)
    assert process is not None
    command.kill()
    command.wait()
    return this_process().model_copy(update={"process": process})


@pytest.fixture
def board(workdir: PurePosixPath) -> Board:
    return load_board("virtual").model_copy(update={"name": "kitchen", "workdir": workdir})


@pytest.mark.parametrize("how", ["restart", "ended", "stopped", "running", "of a live command"])
def test_what_ended_while_nobody_looked_is_said_once_and_its_key_goes(
    host: Host,
    board: Board,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
) -> None:
    this_process()  # this machine's name is read once, and not from the folder of a test
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    if how != "of a live command":
        monkeypatch.setattr(launching, "this_process", a_command_that_has_ended)
    gate = tmp_path / "gate"
    words = waiting_for(gate)
    folder = launched(host, board.workdir, *words, name="service", service_options=ServiceOptions())
    keep_key("service", "secret")
    keep_key("of-another-board", "secret")

    def state() -> str:
        return next(run.state for run in list_runs(host, board.workdir))

    wait_until(lambda: state() == "running")
    if how == "restart":
        Path(folder / "boot_id").write_text("00000000-0000-0000-0000-000000000000\n")
    elif how == "stopped":
        stop(host, folder)
    elif how in ("ended", "of a live command"):
        gate.touch()
    if how != "running":
        wait_until(lambda: state() != "running")
    first, second = Heard(), Heard()
    report_ended_services(host, board, first)
    report_ended_services(host, board, second)
    said = {"restart": "the board restarted", "ended": "it ended by itself"}.get(how)
    assert [f"service is no longer running: {said}" in line for line in first.said] == (
        [True] if said else []
    )
    assert second.said == []
    assert key_file("service").exists() == (how in ("running", "of a live command"))
    assert key_file("of-another-board").exists()
    gate.touch()
