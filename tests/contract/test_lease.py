"""A board has one user at a time, on every kind of host."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import pytest

from armload.boards.host import Host
from armload.boards.local import LocalHost
from armload.boards.virtual.process import Started
from armload.core.errors import BoardError, BusyError
from armload.core.progress import Silent
from armload.core.shell import quote
from armload.deploy import lease as lease_module
from armload.deploy.claims import claims, need_board, release, users
from armload.deploy.holder import this_process
from armload.deploy.layout import Layout
from armload.deploy.lease import leased
from tests.containers import contained, told_by
from tests.contract.leases import BOOT_ID, SOMEBODY, put_up, taken, uptime_s
from tests.faults import mounted

SILENT = Silent()


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


def test_nobody_waits_for_a_service_to_end(host: Host, workdir: PurePosixPath) -> None:
    put_up(workdir, SOMEBODY, run="20261121T-run serving")
    with (
        pytest.raises(BusyError, match="for 3 min, serving 20261121T-run") as caught,
        taken(host, workdir, wait_s=3600),
    ):
        pytest.fail("it is not free")
    stop = f"Stop it: armload service.stop --board {host.name} --name 20261121T-run"
    assert caught.value.remedy == stop
    (claim,) = claims(host, workdir)
    assert (claim.run, claim.is_service) == ("20261121T-run", True)


def test_a_service_of_another_terminal_here_may_be_put_under_load(
    host: Host, workdir: PurePosixPath
) -> None:
    put_up(workdir, this_process(), run="20261121T-run serving")
    with pytest.raises(BusyError) as caught, taken(host, workdir):
        pytest.fail("it is not free")
    assert caught.value.remedy == (
        f"Stop it: armload service.stop --board {host.name} --name 20261121T-run. Or put it under "
        "load with the address and the key file that its armload serve printed: armload load --url "
        "URL --api-key-file FILE"
    )


def test_waiting_ends_when_the_board_is_freed(
    connect: Callable[[], Host], workdir: PurePosixPath
) -> None:
    claim = put_up(workdir, SOMEBODY)
    heard = Heard()
    threading.Timer(1.0, claim.unlink).start()
    with taken(host := connect(), workdir, wait_s=60, progress=heard) as lease:
        assert lease.waited
    (said,) = heard.said
    assert said.startswith(f"{host.name} is in use by ann@thinkpad for 3 min")
    for remedy in ("--wait", "Ctrl-C", f"armload board.release --board {host.name} --force"):
        assert remedy in said


class Heard(Silent):
    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


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
    with pytest.raises(BusyError, match="in use by unknown user"), taken(host, workdir):
        pytest.fail("it is not free")
    put_up(workdir, SOMEBODY, token="older", lasts_s=-1).write_text("")
    Path(Layout(workdir=workdir).lease, "rubbish").touch()
    assert release(host, workdir, force=True)
    with taken(host, workdir):
        pass


def test_a_command_of_this_machine_that_was_killed_holds_up_nobody(
    host: Host, workdir: PurePosixPath
) -> None:
    me = this_process()
    gone = subprocess.Popen(["sleep", "600"])
    process = Started.of(gone.pid)
    assert process is not None
    put_up(workdir, me.model_copy(update={"process": process}))
    with pytest.raises(BusyError), taken(host, workdir):
        pytest.fail("that command still lives")
    assert len(users(host, workdir)) == 1
    gone.kill()
    gone.wait()
    assert users(host, workdir) == ()
    with taken(host, workdir):
        assert len(claims(host, workdir)) == 1


_TAKING = """
import sys
from pathlib import PurePosixPath
from armload.boards.local import LocalHost
from armload.core.errors import BusyError
from tests.contract.leases import taken

try:
    with taken(LocalHost("kitchen"), PurePosixPath(sys.argv[1])):
        print("taken", flush=True)
        sys.stdin.read()
except BusyError:
    print("busy", flush=True)
"""


def test_a_live_command_outside_of_a_container_keeps_its_board(tmp_path: Path) -> None:
    workdir = PurePosixPath(tmp_path)
    with taken(LocalHost("kitchen"), workdir), contained(_TAKING, str(workdir)) as inside:
        assert told_by(inside) == "busy"


def test_what_a_dead_container_leaves_is_free_when_it_has_expired(tmp_path: Path) -> None:
    host, workdir = LocalHost("kitchen"), PurePosixPath(tmp_path)
    with contained(_TAKING, str(workdir)) as inside:
        assert told_by(inside) == "taken"
        (claim,) = claims(host, workdir)
        assert claim.owner is not None
        assert claim.owner.workstation == this_process().workstation
        with pytest.raises(BusyError), taken(host, workdir):
            pytest.fail("it lives in a container")
    with pytest.raises(BusyError), taken(host, workdir):
        pytest.fail("nobody here can know that it has ended")
    (file,) = Path(tmp_path, "lease").iterdir()
    file.rename(file.with_name(f"{file.name.rpartition('.')[0]}.{uptime_s() - 1}"))
    with taken(host, workdir) as lease:
        assert [claim.token for claim in claims(host, workdir)] == [lease.token]


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
        with pytest.raises(BusyError, match="expired"):
            lease.renew()
    assert [claim.token for claim in claims(host, workdir)] == ["other"]


@pytest.mark.exhaustive(covers=["armload/deploy/lease.py", "deploy/board/take_lease.sh.j2"])
def test_a_claim_that_is_renewed_while_the_folder_is_listed_holds_the_board(
    workdir: PurePosixPath,
) -> None:
    claim, here = put_up(workdir, SOMEBODY), LocalHost("here")
    ended = threading.Event()

    def renew() -> None:
        path, other = claim, claim.with_name(f"{claim.name}0")
        while not ended.is_set():
            # As a renewal does: it is there under both names for a moment.
            other.hardlink_to(path)
            path.unlink()
            path, other = other, path

    renewing = threading.Thread(target=renew)
    renewing.start()
    try:
        for _ in range(300):
            with pytest.raises(BusyError), taken(here, workdir):
                pytest.fail("it is not free")
    finally:
        ended.set()
        renewing.join()


def test_a_lease_that_is_renewed_on_full_storage_keeps_its_owner(
    host: Host, workdir: PurePosixPath
) -> None:
    """Whoever copies is told of the storage, and not that somebody else has the board."""
    with mounted(host, workdir, "size=1m"), taken(host, workdir) as lease:
        nearly_over = lease.folder / f"{lease.token}.{BOOT_ID}.{uptime_s() + 5}"
        host.run(f"mv {quote(lease.folder)}/* {quote(nearly_over)}")
        assert host.run(f"cat /dev/zero >{quote(workdir / 'more')}").status != 0
        lease.renew()
        (claim,) = claims(host, workdir)
        assert claim.left_s > 50
        assert claim.owner == this_process()
        need_board(host, workdir)


def test_a_long_lease_is_renewed_over_a_connection_of_its_own(
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


def test_what_a_command_does_with_the_board_is_told_also_after_a_renewal(
    host: Host, workdir: PurePosixPath
) -> None:
    with leased(
        *(host, workdir, Silent()), wait_s=0, beside=lambda: host, doing="timing operations"
    ) as lease:
        lease.renew()
        (claim,) = claims(host, workdir)
        assert claim.words.endswith(", timing operations")
        assert claim.owner == this_process()
