"""Runs that end or are stopped before they are fetched: what was seen of them, and the lease."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import pytest

from armload.boards.board import Board
from armload.boards.local import LocalHost
from armload.core.progress import Silent
from armload.core.workspace import runs_folder
from armload.deploy.board_runs import list_runs
from armload.deploy.claims import claims
from armload.deploy.follow import follow
from armload.deploy.launch import launch
from armload.deploy.layout import Layout
from armload.engines.job import Job
from armload.runs.api_keys import keep_key
from armload.runs.fetch import pull
from armload.runs.interruption import stoppable
from armload.runs.session import Connection
from tests.contract.leases import taken
from tests.resuming import resumed
from tests.unit.runs import BEFORE, quick_run

NAME = "20261121T110000Z-my-board-m-0001"


@pytest.fixture
def ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Board:
    """This machine with a run that was followed to its end, and not fetched."""
    monkeypatch.chdir(tmp_path)
    values = {"name": "my-board", "target": "rk3568", "reach": {"kind": "local"}}
    board = Board.model_validate({**values, "workdir": str(tmp_path / "work")})
    folder = Layout(workdir=board.workdir).run(NAME)
    job = quick_run().model_dump(include=set(Job.model_fields))
    with closing(LocalHost("my-board")) as host:
        launch(
            host,
            run_folder=folder,
            argv=["printf", "One two"],
            trace=True,
            time_limit_s=60,
            job=Job.model_validate({**job, "id": NAME}).model_dump_json().encode(),
        )
        assert follow(host, folder, lambda now: None, keep=runs_folder() / NAME) == 0
    return board


@pytest.mark.parametrize("left", [b"", b"One t", bytes(7)], ids=["nothing", "a part", "zeros"])
def test_what_was_seen_of_the_text_is_kept_when_a_restart_takes_it_from_the_board(
    ended: Board, left: bytes
) -> None:
    folder = Path(Layout(workdir=ended.workdir).run(NAME))
    (folder / "stdout").write_bytes(left)
    (folder / "exit").unlink()
    (folder / "boot_id").write_text("the boot before\n")
    (run,) = pull(ended, Silent()).runs
    assert (run.exit.kind, run.text) == ("restart", "One two")
    assert [path.name for path in (runs_folder() / NAME).glob("seen*")] == []


def test_the_key_of_a_service_goes_when_its_run_is_fetched(
    ended: Board, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    key, other = keep_key(NAME, "secret"), keep_key(f"{NAME}-other", "secret")
    pull(ended, Silent())
    assert (key.exists(), other.exists()) == (False, True)


def test_a_run_is_judged_alike_by_whatever_fetches_it_though_its_board_was_rebooted_since(
    ended: Board, tmp_path: Path
) -> None:
    folder = Path(Layout(workdir=ended.workdir).run(NAME))
    boot_id, former = (folder / "boot_id").read_text().strip(), BEFORE.boot_id
    for name in ("boot_id", "after"):
        (folder / name).write_text((folder / name).read_text().replace(boot_id, former))
    with closing(Connection(ended, Silent())) as connection:
        (left,) = list_runs(connection.host, ended.workdir)
        taken, home = resumed(connection, left, tmp_path, Silent())
    shutil.rmtree(home)
    (pulled,) = pull(ended, Silent()).runs
    assert taken == pulled
    assert taken.after is not None
    assert taken.after.boot_id == former
    assert taken.exit.kind == "done"
    assert not [reason for reason in taken.verdict.reasons if "reboot" in reason]


@pytest.mark.parametrize("begun", [False, True], ids=["before its launch", "after it"])
def test_ctrl_c_while_a_run_is_launched_frees_the_board_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, begun: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    values = {"name": "my-board", "target": "rk3568", "reach": {"kind": "local"}}
    board = Board.model_validate({**values, "workdir": str(tmp_path / "work")})
    folder = Layout(workdir=board.workdir).run(NAME)
    job = Job.model_validate({**quick_run().model_dump(include=set(Job.model_fields)), "id": NAME})

    def start() -> None:
        lease.hand_to_run()
        if begun:
            launch(
                connection.host,
                run_folder=folder,
                argv=["sleep", "600"],
                trace=True,
                time_limit_s=600,
                job=job.model_dump_json().encode(),
                lease=lease,
            )
        raise KeyboardInterrupt

    with closing(Connection(board, Silent())) as connection:
        with (
            pytest.raises(KeyboardInterrupt),
            taken(connection.host, board.workdir) as lease,
            stoppable(connection, folder, job, lease, Silent()),
        ):
            start()
        assert claims(connection.host, board.workdir) == ()
        runs = list_runs(connection.host, board.workdir)
    assert [run.stopped for run in runs] == [True] * begun
