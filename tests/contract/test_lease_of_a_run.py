"""A run has the board until its end, with its workstation or without, on every kind of host."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import pytest

from armload.boards.host import Host
from armload.boards.virtual.process import Started
from armload.core.errors import BusyError
from armload.core.progress import Silent
from armload.deploy import lease as lease_module
from armload.deploy.claims import claims, release, users
from armload.deploy.follow import follow
from armload.deploy.holder import this_process
from armload.deploy.launch import launch
from armload.deploy.layout import Layout
from armload.deploy.lease import leased
from tests.contract.launching import launched, nothing, waiting_for
from tests.contract.leases import SOMEBODY, put_up, taken, uptime_s
from tests.waiting import wait_until

SILENT = Silent()


def test_a_killed_commands_run_keeps_the_board(host: Host, workdir: PurePosixPath) -> None:
    me = this_process()
    dead = me.model_copy(update={"process": Started(pid=me.process.pid, start_mark="0")})
    put_up(workdir, dead, run="some-run")
    with pytest.raises(BusyError, match="running some-run"), taken(host, workdir):
        pytest.fail("a run is under way")


def test_a_renewal_under_way_does_not_cost_a_run_its_lease(
    connect: Callable[[], Host], workdir: PurePosixPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_module, "RENEW_EVERY_S", 0.001)
    host = connect()
    with leased(host, workdir, SILENT, wait_s=0, beside=connect) as lease:
        time.sleep(0.5)
        folder = launched(host, workdir, "true", lease=lease)
    assert follow(host, folder, nothing) == 0


def test_a_run_keeps_the_board_without_this_machine_and_frees_it_at_its_end(
    host: Host, workdir: PurePosixPath, tmp_path: Path
) -> None:
    folder, gate = launched_under_a_lease(host, workdir, tmp_path)
    with pytest.raises(BusyError, match="running run"), taken(host, workdir):
        pytest.fail("a run is under way")
    gate.touch()
    assert follow(host, folder, nothing) == 0
    assert not Path(folder, "unleased").exists()
    with taken(host, workdir, wait_s=10):
        assert [claim.run for claim in claims(host, workdir)] == [""]


def launched_under_a_lease(
    host: Host, workdir: PurePosixPath, tmp_path: Path
) -> tuple[PurePosixPath, Path]:
    """Start a program that keeps the board until there is a file; return both."""
    gate = tmp_path / "gate"
    with taken(host, workdir) as lease:
        folder = launched(host, workdir, *waiting_for(gate), lease=lease)
    wait_until(lambda: any(claim.run == "run" for claim in claims(host, workdir)))
    return folder, gate


def test_a_run_renews_its_lease(host: Host, workdir: PurePosixPath, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with taken(host, workdir) as lease:
        folder = launched(host, workdir, *waiting_for(gate), lease=lease, renew_every_s=1)
        first = uptime_s() + lease_module.TERM_S
        wait_until(
            lambda: any(each.left_s + uptime_s() > first + 1 for each in claims(host, workdir))
        )
        gate.touch()
    assert follow(host, folder, nothing) == 0


def test_a_run_does_not_start_when_somebody_else_has_the_board(
    host: Host, workdir: PurePosixPath, tmp_path: Path
) -> None:
    with taken(host, workdir) as lease:
        lease.hand_to_run()
        for claim in Path(lease.folder).iterdir():
            claim.unlink()
        put_up(workdir, SOMEBODY)
        folder = Layout(workdir=workdir).run("run")
        launch(
            host,
            run_folder=folder,
            argv=["touch", str(tmp_path / "ran")],
            trace=False,
            time_limit_s=60,
            job=b"{}",
            lease=lease,
        )
    assert follow(host, folder, nothing) == 75
    assert not (tmp_path / "ran").exists()
    assert [claim.token for claim in claims(host, workdir)] == ["other"]


def test_the_program_of_a_dead_run_is_ended_when_its_lease_is_taken_over(
    host: Host, workdir: PurePosixPath
) -> None:
    with taken(host, workdir) as lease:
        folder = launched(host, workdir, "sleep", "600", lease=lease)
    pid_file = Path(folder, "pid")
    wait_until(lambda: pid_file.exists() and bool(pid_file.read_text().strip()))
    program = Started.of(int(pid_file.read_text()))
    assert program is not None
    killed = [int(Path(folder, "wrapper").read_text())]
    killed += [pid for pid in children(killed[0]) if pid != program.pid]
    for pid in killed:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 9)
    for claim in Path(lease.folder).iterdir():
        token, boot, _ = claim.name.split(".")
        claim.rename(claim.with_name(f"{token}.{boot}.{uptime_s() - 1}"))
    with taken(host, workdir):
        assert program.wait_gone(5)


def children(pid: int) -> list[int]:
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)
    return [int(word) for word in found.stdout.split()]


def test_a_lease_that_ones_own_run_keeps_is_released_only_by_force(
    host: Host, workdir: PurePosixPath, tmp_path: Path
) -> None:
    folder, gate = launched_under_a_lease(host, workdir, tmp_path)
    with pytest.raises(BusyError, match="your run run is still running") as caught:
        release(host, workdir, force=False)
    assert "--force" in caught.value.remedy
    assert [claim.run for claim in claims(host, workdir)] == ["run"]
    (user,) = users(host, workdir)
    assert user.endswith("running run")
    assert [claim.run for claim in release(host, workdir, force=True)] == ["run"]
    assert users(host, workdir) == ("the run run",)
    gate.touch()
    assert follow(host, folder, nothing) == 0
    assert Path(folder, "unleased").exists()


def test_a_lease_of_ones_own_run_that_has_ended_is_released_as_any_other(
    host: Host, workdir: PurePosixPath
) -> None:
    put_up(workdir, this_process(), token="mine", run="a-run-that-is-gone")
    assert [claim.token for claim in release(host, workdir, force=False)] == ["mine"]
