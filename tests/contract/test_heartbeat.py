"""A service on every kind of host: attended, detached, left alone, with a log that stays short."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import TypeVar

import pytest

from armload.boards.host import Host
from armload.boards.virtual.process import Started
from armload.core.errors import BusyError
from armload.core.progress import Silent
from armload.deploy.claims import claims
from armload.deploy.collect import collect
from armload.deploy.exit_reason import explain
from armload.deploy.follow import follow, stop
from armload.deploy.heartbeat import heartbeat, note_port
from armload.deploy.holder import this_process
from armload.deploy.launch import ServiceOptions
from armload.deploy.layout import Layout
from tests.contract.launching import launched, nothing, waiting_for
from tests.contract.leases import taken

PATIENCE_S = 2
Seen = TypeVar("Seen")


@pytest.fixture
def secret(workdir: PurePosixPath) -> Path:
    path = Path(workdir / "api-key")
    path.parent.mkdir(parents=True)
    path.write_text("key\n")
    return path


def service_options(
    secret: Path, *, patience_s: int = PATIENCE_S, log_limit_bytes: int = 1 << 20
) -> ServiceOptions:
    return ServiceOptions(
        patience_s=patience_s,
        log_every_s=1,
        log_limit_bytes=log_limit_bytes,
        secret=PurePosixPath(secret),
    )


def until(ask: Callable[[], Seen], condition: Callable[[Seen], bool]) -> Seen:
    for _ in range(300):
        if condition(now := ask()):
            return now
        time.sleep(0.1)
    raise AssertionError(now)


def test_a_service_that_nobody_attends_ends_and_its_lease_and_secret_with_it(
    host: Host, workdir: PurePosixPath, secret: Path, tmp_path: Path
) -> None:
    with taken(host, workdir) as lease:
        words = waiting_for(tmp_path / "never")
        folder = launched(
            host, workdir, *words, lease=lease, service_options=service_options(secret)
        )
    until(lambda: heartbeat(host, folder), lambda now: now.condition == "running")
    # The run's script is there before it has put its name on the lease.
    (claim,) = until(lambda: claims(host, workdir), lambda now: now[0].run != "")
    assert (claim.run, claim.is_service) == (folder.name, True)
    looked = until(
        lambda: heartbeat(host, folder, look_only=True), lambda now: now.condition == "ended"
    )
    assert looked.is_attended
    beat = Path(folder / "beat")
    beat.write_text("1\n")
    assert heartbeat(host, folder).condition == "ended"
    assert beat.read_text() == "1\n", "what has ended is not changed while it is fetched"
    collect(host, folder, tmp_path / "run")
    assert explain(tmp_path / "run").kind == "unattended"
    assert claims(host, workdir) == ()
    assert not secret.exists()


def test_a_service_goes_on_while_somebody_attends_it_and_after_it_was_detached(
    host: Host, workdir: PurePosixPath, secret: Path, tmp_path: Path
) -> None:
    words = waiting_for(tmp_path / "never")
    folder = launched(host, workdir, *words, service_options=service_options(secret))
    for _ in range(3):
        time.sleep(PATIENCE_S / 2)
        assert heartbeat(host, folder).condition == "running"
    assert not heartbeat(host, folder, detach=True).is_attended
    time.sleep(PATIENCE_S + 2)
    assert heartbeat(host, folder).condition == "running"
    stop(host, folder, finished=True)
    assert follow(host, folder, nothing) != 0
    collect(host, folder, tmp_path / "run")
    assert explain(tmp_path / "run").kind == "done"


class Heard(Silent):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)


@pytest.mark.parametrize("is_detached", [False, True], ids=["attended", "detached"])
def test_a_service_whose_command_was_killed_is_waited_for_unless_it_was_detached(
    host: Host,
    workdir: PurePosixPath,
    secret: Path,
    tmp_path: Path,
    is_detached: bool,  # noqa: FBT001
) -> None:
    killed = subprocess.Popen(["sleep", "600"])
    process = Started.of(killed.pid)
    assert process is not None
    killed.kill()
    killed.wait()
    # A machine that stalls must not end the service before it is detached.
    options = service_options(secret, patience_s=120 if is_detached else PATIENCE_S)
    with taken(host, workdir) as lease:
        words = waiting_for(tmp_path / "never")
        folder = launched(host, workdir, *words, lease=lease, service_options=options)
    until(lambda: heartbeat(host, folder), lambda now: now.condition == "running")
    until(lambda: claims(host, workdir), lambda now: now[0].run != "")
    if is_detached:
        heartbeat(host, folder, detach=True)
    owner = this_process().model_copy(update={"process": process})
    (path,) = Path(Layout(workdir=workdir).lease).glob("*")
    _, *rest = path.read_text().splitlines()
    path.write_text("\n".join([owner.model_dump_json(), *rest]) + "\n")
    heard = Heard()
    if is_detached:
        with (
            pytest.raises(BusyError, match="keeps the board until it is stopped"),
            taken(host, workdir, progress=heard),
        ):
            pytest.fail("it is not free")
        stop(host, folder)
        assert heard.lines == []
        return
    with taken(host, workdir, progress=heard) as lease:
        assert lease.waited
    (said,) = heard.lines
    assert f"the service {folder.name} of a command that was killed; waiting for it to end" in said
    assert heartbeat(host, folder, look_only=True).condition == "ended"


def test_the_log_comes_once_and_the_port_is_kept(
    host: Host, workdir: PurePosixPath, secret: Path, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    script = f"echo one >&2; until [ -e '{gate}' ]; do sleep 0.1; done; echo two >&2; sleep 60"
    folder = launched(host, workdir, "sh", "-c", script, service_options=service_options(secret))
    first = until(lambda: heartbeat(host, folder), lambda now: now.log == b"one\n")
    assert first.port is None
    note_port(host, folder, 8123)
    gate.touch()
    known_bytes = first.log_bytes
    second = until(
        lambda: heartbeat(host, folder, log_from_bytes=known_bytes), lambda now: bool(now.log)
    )
    assert (second.log, second.port) == (b"two\n", 8123)
    stop(host, folder)


@pytest.mark.exhaustive(covers=["armload/deploy", "armload/runs"])
def test_a_log_that_is_too_long_begins_anew(
    host: Host, workdir: PurePosixPath, secret: Path, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    script = f"while [ ! -e '{gate}' ]; do echo word >&2; sleep 0.05; done; echo end >&2; sleep 60"
    short = service_options(secret, log_limit_bytes=10)
    folder = launched(host, workdir, "sh", "-c", script, service_options=short)
    until(lambda: heartbeat(host, folder), lambda _: Path(folder / "stderr.1").exists())
    gate.touch()
    former = Path(folder / "stderr.1")
    # The log may begin anew between its last line and the next look at it.
    until(
        lambda: heartbeat(host, folder),
        lambda now: b"end\n" in now.log or former.read_text().endswith("end\n"),
    )
    kept = [former.read_text(), Path(folder / "stderr").read_text()]
    assert all(line in ("word", "end") for text in kept for line in text.splitlines())
    stop(host, folder)


def test_no_service_is_told_as_such(host: Host, workdir: PurePosixPath) -> None:
    assert heartbeat(host, workdir / "runs" / "absent").condition == "gone"
