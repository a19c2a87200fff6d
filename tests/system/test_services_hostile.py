"""Root signals a service's own supervisor, whatever the service's user writes and starts."""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path, PurePosixPath

import pytest

from armload.boards.boot import BootFacts
from armload.boards.local import LocalHost
from armload.build.helper import SUPERVISE, helper
from armload.build.target import machine_architecture
from armload.core.shell import render
from armload.deploy.layout import Layout
from armload.runs import board_services
from armload.runs.board_services import mention_services
from armload.services.folder import end_by_hand
from armload.services.init_systems import SysV
from armload.services.installing import take_up_version
from armload.services.state import ServiceOnBoard, installed_service
from armload.services.unit import UnitFacts
from armload.services.users import remove_user
from tests.supervised import Heard, ServiceFolder
from tests.waiting import wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="takes root, to be several users")

USER = "games"
ROOT = BootFacts(user="root", uid=0, root="login", home=PurePosixPath("/root"))
HOST = LocalHost("kitchen")


class Owned:
    """A service of a work folder, which root supervises and in which its user may make files."""

    def __init__(self, workdir: Path, name: str) -> None:
        self.workdir, self.name = workdir, name
        self.supervise = workdir / "bin" / "0123456789ab" / "supervise"
        if not self.supervise.exists():
            self.supervise.parent.mkdir(parents=True)
            shutil.copy(helper(SUPERVISE, architecture=machine_architecture()).path, self.supervise)
        self.path = workdir / "services" / name
        self.path.parent.mkdir(exist_ok=True)
        self.service = ServiceFolder(self.path, [str(self.supervise)])
        for version in ("a", "b"):
            self.service.server(version)
        self.service.use("a")
        self.path.chmod(0o777)
        values = {"supervise": self.supervise, "folder": self.path, "name": name}
        (self.path / "run").write_text(render("service/run.sh.j2", values))

    @property
    def unit(self) -> UnitFacts:
        return UnitFacts(name=self.name, folder=PurePosixPath(self.path))

    def starts(self) -> None:
        (self.path / "state").unlink(missing_ok=True)
        self.service.start()
        self.service.waits_for(state="ready")

    def told(self) -> ServiceOnBoard:
        return installed_service(HOST, PurePosixPath(self.workdir), self.name)

    def running(self) -> list[str]:
        board_services._mentioned.clear()
        heard = Heard()
        mention_services(HOST, Layout(workdir=PurePosixPath(self.workdir)), heard)
        return re.findall(r"installed service (\S+) is running", heard.said)

    def takes_up(self) -> bool:
        return take_up_version(HOST, ROOT, SysV(ROOT), self.unit)

    def says(self, pid: int) -> None:
        """Have the state name a process."""
        text = json.dumps({"state": "ready", "version": "a", "pid": pid})
        (self.path / "state").write_text(f"{text}\n")


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def tutor(tmp_path: Path, stack: ExitStack) -> Owned:
    return owned(tmp_path, "tutor", stack)


def owned(workdir: Path, name: str, stack: ExitStack) -> Owned:
    made = Owned(workdir, name)
    stack.callback(made.service.close)
    return made


def started(stack: ExitStack, *words: str, program: str, user: str | None = None) -> int:
    """Start a program under any name, and return its number."""
    pid = subprocess.Popen(words, executable=program, user=user)
    stack.callback(pid.wait)
    stack.callback(pid.kill)
    wait_until(lambda: bool(Path(f"/proc/{pid.pid}/cmdline").read_bytes()))
    return pid.pid


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def test_its_supervisor_takes_up_another_version(tutor: Owned) -> None:
    assert not tutor.takes_up()
    tutor.starts()
    assert tutor.told().is_alive
    assert tutor.running() == ["tutor"]
    tutor.service.use("b")
    assert tutor.takes_up()
    tutor.service.waits_for(state="ready", version="b")


def test_a_state_that_names_another_process_reaches_none(tutor: Owned, stack: ExitStack) -> None:
    victim = started(stack, "sshd", "1000", program="/bin/sleep")
    for each in (victim, os.getpid(), 1):
        tutor.says(each)
        assert not tutor.told().is_alive
        assert tutor.running() == []
        assert not tutor.takes_up()
    assert is_alive(victim)


def test_a_state_that_names_another_service_s_supervisor_reaches_its_own_alone(
    tutor: Owned, stack: ExitStack, tmp_path: Path
) -> None:
    other = owned(tmp_path, "tutor2", stack)
    other.starts()
    assert other.service.process is not None
    tutor.says(other.service.process.pid)
    other.service.use("b")
    assert not tutor.told().is_alive
    assert tutor.running() == ["tutor2"]
    assert not tutor.takes_up()
    assert other.service.state()["version"] == "a"
    tutor.starts()
    tutor.says(other.service.process.pid)
    tutor.service.use("b")
    assert tutor.takes_up()
    wait_until(lambda: "switching from version a to version b" in tutor.service.log())
    assert "switching" not in other.service.log()


def test_a_program_of_the_same_name_is_not_taken_for_the_supervisor(
    tutor: Owned, stack: ExitStack
) -> None:
    program = "/usr/bin/perl"
    words = ("-e", "sleep 1000", str(tutor.supervise), str(tutor.path))
    forged = started(stack, "supervise", *words, program=program, user=USER)
    tutor.says(forged)
    assert not tutor.takes_up()
    assert is_alive(forged)
    (tutor.path / "run").write_text("#!/bin/sh\nexec true 'unclosed\n")
    assert not tutor.takes_up()


def test_ending_a_service_leaves_one_whose_name_begins_alike(
    tutor: Owned, stack: ExitStack, tmp_path: Path
) -> None:
    other = owned(tmp_path, "tutor2", stack)
    other.starts()
    tutor.starts()
    end_by_hand(HOST, ROOT, PurePosixPath(tutor.path))
    assert tutor.service.process is not None
    assert tutor.service.process.wait(30) == 0
    assert other.told().is_alive


def test_nothing_of_its_user_runs_on_when_that_is_removed(stack: ExitStack) -> None:
    user = "armload-test-stray"
    if subprocess.run(["useradd", "--system", user], check=False).returncode != 0:
        pytest.skip("this machine cannot add a user")
    uid = pwd.getpwnam(user).pw_uid
    strays = [started(stack, "stray", "1000", program="/bin/sleep", user=user) for _ in range(2)]
    mine = started(stack, "mine", "1000", program="/bin/sleep")
    try:
        remove_user(HOST, ROOT, user)
    finally:
        subprocess.run(["userdel", user], check=False, capture_output=True)
    wait_until(lambda: not any(is_alive(each) for each in strays))
    assert is_alive(mine)
    assert uid not in {each.pw_uid for each in pwd.getpwall()}
