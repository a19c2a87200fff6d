"""A board has one user at a time, on every kind of host."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path, PurePosixPath

import pytest

from armload.boards.host import Host
from armload.boards.virtual.process import Started
from armload.core.errors import BoardError, BusyError
from armload.core.progress import Silent
from armload.deploy import lease as lease_module
from armload.deploy.claims import claims, release
from armload.deploy.follow import follow
from armload.deploy.launch import launch
from armload.deploy.layout import Layout
from armload.deploy.lease import Lease, leased
from armload.deploy.owner import Owner, this_process
from tests.contract.conftest import Makers

SILENT = Silent()
BOOT_ID = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
SOMEBODY = Owner(
    user="ann", laptop="thinkpad-0a1b", process=Started(pid=os.getpid(), start_mark="1")
)


@pytest.fixture
def workdir(tmp_path: Path) -> PurePosixPath:
    return PurePosixPath(tmp_path / "work dir's $(id)")


@pytest.fixture
def connect(makers: Makers) -> Iterator[Callable[[], Host]]:
    with ExitStack() as stack:
        yield lambda: stack.enter_context(closing(makers[0]()))


def taken(
    host: Host, workdir: PurePosixPath, wait_s: float = 0
) -> contextlib.AbstractContextManager[Lease]:
    def never() -> Host:
        raise AssertionError("short leases need no other line")

    return leased(host, workdir, SILENT, wait_s=wait_s, beside=never)


def uptime_s() -> int:
    return int(Path("/proc/uptime").read_text().split(".")[0])


def put_up(
    workdir: PurePosixPath,
    owner: Owner,
    *,
    token: str = "other",
    boot: str = BOOT_ID,
    lasts_s: int = 50,
    run: str = "",
) -> Path:
    claim = Path(Layout(workdir=workdir).lease) / f"{token}.{boot}.{uptime_s() + lasts_s}"
    claim.parent.mkdir(parents=True, exist_ok=True)
    claim.write_text(f"{owner.model_dump_json()}\n{uptime_s() - 200}\n{run}\n")
    return claim


def test_a_board_is_had_within_the_block_and_free_after_it(
    host: Host, workdir: PurePosixPath
) -> None:
    assert claims(host, workdir) == ()
    with taken(host, workdir) as lease:
        (claim,) = claims(host, workdir)
        assert claim.token == lease.token
        assert claim.owner == this_process()
        assert claim.left_s in (lease_module.TERM_S, lease_module.TERM_S - 1)
        assert not lease.waited
    assert claims(host, workdir) == ()


def test_a_board_is_free_after_a_failure_too(host: Host, workdir: PurePosixPath) -> None:
    with pytest.raises(KeyboardInterrupt), taken(host, workdir):
        raise KeyboardInterrupt
    assert claims(host, workdir) == ()


def test_the_second_is_told_who_has_the_board_and_for_how_long(
    host: Host, workdir: PurePosixPath
) -> None:
    put_up(workdir, SOMEBODY, run="20261121T-run")
    with (
        pytest.raises(BusyError, match=r"in use by ann@thinkpad for 3 min, running 20261121T-run"),
        taken(host, workdir),
    ):
        pytest.fail("it is not free")
    assert [claim.token for claim in claims(host, workdir)] == ["other"]


def test_waiting_ends_when_the_board_is_freed(
    connect: Callable[[], Host], workdir: PurePosixPath
) -> None:
    claim = put_up(workdir, SOMEBODY)
    threading.Timer(1.0, claim.unlink).start()
    with taken(connect(), workdir, wait_s=60) as lease:
        assert lease.waited


@pytest.mark.parametrize(
    "dead", [{"lasts_s": -2}, {"boot": "another-boot"}], ids=["ended", "of a former boot"]
)
def test_a_claim_that_nobody_renewed_is_taken_over(
    host: Host, workdir: PurePosixPath, dead: dict[str, object]
) -> None:
    put_up(workdir, SOMEBODY, **dead)  # type: ignore[arg-type]
    with taken(host, workdir) as lease:
        assert [claim.token for claim in claims(host, workdir)] == [lease.token]


def test_a_claim_that_was_cut_off_while_it_was_written_ends_like_any_other(
    host: Host, workdir: PurePosixPath
) -> None:
    put_up(workdir, SOMEBODY).write_text("")
    with pytest.raises(BusyError, match="in use by somebody"), taken(host, workdir):
        pytest.fail("it is not free")
    put_up(workdir, SOMEBODY, token="older", lasts_s=-1).write_text("")
    Path(Layout(workdir=workdir).lease, "rubbish").touch()
    assert release(host, workdir, force=True)
    with taken(host, workdir):
        pass


def test_a_command_of_this_laptop_that_was_killed_holds_up_nobody(
    host: Host, workdir: PurePosixPath
) -> None:
    me = this_process()
    gone = subprocess.Popen(["sleep", "600"])
    process = Started.of(gone.pid)
    assert process is not None
    put_up(workdir, me.model_copy(update={"process": process}))
    with pytest.raises(BusyError), taken(host, workdir):
        pytest.fail("that command still lives")
    gone.kill()
    gone.wait()
    with taken(host, workdir):
        assert len(claims(host, workdir)) == 1


def test_a_killed_commands_run_keeps_the_board(host: Host, workdir: PurePosixPath) -> None:
    me = this_process()
    dead = me.model_copy(update={"process": Started(pid=me.process.pid, start_mark="0")})
    put_up(workdir, dead, run="some-run")
    with pytest.raises(BusyError, match="running some-run"), taken(host, workdir):
        pytest.fail("a run is under way")


def test_only_one_at_a_time_has_the_board(
    connect: Callable[[], Host], workdir: PurePosixPath, tmp_path: Path
) -> None:
    """Several come at once, over a dead claim: each gets it, and nobody beside another."""
    put_up(workdir, SOMEBODY, lasts_s=-1)
    inside = tmp_path / "inside"
    had, failures = [], []

    def come(number: int, host: Host) -> None:
        try:
            with taken(host, workdir, wait_s=120):
                inside.mkdir()  # fails when somebody else is inside
                time.sleep(0.05)
                inside.rmdir()
                had.append(number)
        except Exception as error:  # noqa: BLE001 - shown by the test
            failures.append(error)

    comers = [threading.Thread(target=come, args=(n, connect())) for n in range(5)]
    for each in comers:
        each.start()
    for each in comers:
        each.join()
    assert failures == []
    assert sorted(had) == [0, 1, 2, 3, 4]


def test_a_lease_is_renewed_and_one_that_was_taken_over_is_not(
    host: Host, workdir: PurePosixPath
) -> None:
    with taken(host, workdir) as lease:
        folder = Path(lease.folder)
        (old,) = folder.iterdir()
        nearly_over = folder / f"{lease.token}.{BOOT_ID}.{uptime_s() + 5}"
        old.rename(nearly_over)
        lease.renew()
        (claim,) = claims(host, workdir)
        assert claim.left_s > 50
        assert claim.owner == this_process()
        (only,) = folder.iterdir()
        only.unlink()
        put_up(workdir, SOMEBODY)
        with pytest.raises(BusyError, match="ran out"):
            lease.renew()
    assert [claim.token for claim in claims(host, workdir)] == ["other"]


def test_a_long_lease_is_renewed_over_a_line_of_its_own(
    connect: Callable[[], Host], workdir: PurePosixPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_module, "RENEW_EVERY_S", 0.2)
    host = connect()
    with leased(host, workdir, SILENT, wait_s=0, beside=connect) as lease:
        (old,) = Path(lease.folder).iterdir()
        nearly_over = Path(lease.folder) / f"{lease.token}.{BOOT_ID}.{uptime_s() + 5}"
        old.rename(nearly_over)
        while nearly_over.exists():
            time.sleep(0.05)
        assert any(claim.left_s > 50 for claim in claims(host, workdir))


def launched(host: Host, workdir: PurePosixPath, lease: Lease, script: str) -> PurePosixPath:
    folder = Layout(workdir=workdir).run("run")
    lease.hand_to_run()
    launch(
        host,
        run_folder=folder,
        argv=["sh", "-c", script],
        trace=False,
        time_limit_s=60,
        job=b"{}",
        lease=lease,
    )
    return folder


def test_a_renewal_under_way_does_not_cost_a_run_its_lease(
    connect: Callable[[], Host], workdir: PurePosixPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_module, "RENEW_EVERY_S", 0.001)
    host = connect()
    with leased(host, workdir, SILENT, wait_s=0, beside=connect) as lease:
        time.sleep(0.5)
        folder = launched(host, workdir, lease, "true")
    assert follow(host, folder, lambda steps, text: None) == 0


def test_a_run_keeps_the_board_without_the_laptop_and_frees_it_at_its_end(
    host: Host, workdir: PurePosixPath, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    with taken(host, workdir) as lease:
        folder = launched(host, workdir, lease, f"until [ -e '{gate}' ]; do sleep 0.1; done")
    while not any(claim.run == "run" for claim in claims(host, workdir)):
        time.sleep(0.05)
    with pytest.raises(BusyError, match="running run"), taken(host, workdir):
        pytest.fail("a run is under way")
    gate.touch()
    assert follow(host, folder, lambda steps, text: None) == 0
    with taken(host, workdir, wait_s=10):
        assert [claim.run for claim in claims(host, workdir)] == [""]


def test_a_run_renews_its_lease(host: Host, workdir: PurePosixPath, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with taken(host, workdir) as lease:
        lease.hand_to_run()
        launch(
            host,
            run_folder=Layout(workdir=workdir).run("run"),
            argv=["sh", "-c", f"until [ -e '{gate}' ]; do sleep 0.1; done"],
            trace=False,
            time_limit_s=60,
            job=b"{}",
            lease=lease,
            renew_every_s=1,
        )
        first = uptime_s() + lease_module.TERM_S
        while not any(claim.left_s + uptime_s() > first + 1 for claim in claims(host, workdir)):
            time.sleep(0.2)
        gate.touch()
    assert follow(host, Layout(workdir=workdir).run("run"), lambda steps, text: None) == 0


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
    assert follow(host, folder, lambda steps, text: None) == 75
    assert not (tmp_path / "ran").exists()
    assert [claim.token for claim in claims(host, workdir)] == ["other"]


def test_the_program_of_a_dead_run_is_ended_when_its_lease_is_taken_over(
    host: Host, workdir: PurePosixPath
) -> None:
    with taken(host, workdir) as lease:
        folder = launched(host, workdir, lease, "sleep 600")
    while not Path(folder, "pid").exists() or not Path(folder, "pid").read_text().strip():
        time.sleep(0.05)
    program = Started.of(int(Path(folder, "pid").read_text()))
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


def test_ones_own_lease_is_released_and_anothers_only_by_force(
    host: Host, workdir: PurePosixPath
) -> None:
    put_up(workdir, this_process(), token="mine")
    assert [claim.token for claim in release(host, workdir, force=False)] == ["mine"]
    put_up(workdir, SOMEBODY)
    with pytest.raises(BusyError, match="ann@thinkpad"):
        release(host, workdir, force=False)
    (ended,) = release(host, workdir, force=True)
    assert ended.owner == SOMEBODY
    assert release(host, workdir, force=True) == ()


def test_a_lease_that_ones_own_run_keeps_is_released_only_by_force(
    host: Host, workdir: PurePosixPath, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    with taken(host, workdir) as lease:
        folder = launched(host, workdir, lease, f"until [ -e '{gate}' ]; do sleep 0.1; done")
    while not any(claim.run == "run" for claim in claims(host, workdir)):
        time.sleep(0.05)
    with pytest.raises(BusyError, match="your own run run goes on") as caught:
        release(host, workdir, force=False)
    assert "--force" in caught.value.remedy
    assert [claim.run for claim in claims(host, workdir)] == ["run"]
    assert [claim.run for claim in release(host, workdir, force=True)] == ["run"]
    gate.touch()
    assert follow(host, folder, lambda steps, text: None) == 0


def test_a_lease_of_ones_own_run_that_has_ended_is_released_as_any_other(
    host: Host, workdir: PurePosixPath
) -> None:
    put_up(workdir, this_process(), token="mine", run="a-run-that-is-gone")
    assert [claim.token for claim in release(host, workdir, force=False)] == ["mine"]


def test_a_folder_that_cannot_be_written_is_said(host: Host, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(BoardError, match="cannot be written"),
        taken(host, PurePosixPath(tmp_path / "file")),
    ):
        pytest.fail("there is no place for a lease")


def test_an_owner_is_one_word_for_a_shell() -> None:
    words = json.loads(this_process().model_dump_json())
    assert set(json.dumps(words)) & set("\\'$`") == set()
