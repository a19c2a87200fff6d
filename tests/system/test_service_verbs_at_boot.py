"""The verbs of a service with each init system, as a person on another computer types them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from armload.boards.boot import InitName
from armload.boards.host import Host
from tests.init_boards import OPENRC, SYSTEMD, SYSV, Distribution, InitBoard
from tests.person import Person
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.build,
    pytest.mark.machine,
    pytest.mark.timeout(3600),
    pytest.mark.exhaustive(
        covers=["armload/services", "deploy/service", "toolchains/board", "tests/init_boards.py"]
    ),
]
NAME = "tutor"
ON = ("--board", "far", "--name", NAME)
SETTINGS = ("--model", "word-problems:Q8_0", "--threads", "1", "--slots", "1", "--context", "256")
READY_WITHIN_S = 400


class Owner:
    """Somebody whose board has an init system of Debian's."""

    def __init__(self, folder: Path, distribution: Distribution, user: str) -> None:
        self.folder = folder / "disk"
        self.folder.mkdir()
        self.machine = InitBoard(distribution, self.folder)
        self.person = Person(folder / "ann")
        self.person.environment["XDG_STATE_HOME"] = str(self.person.folder / "state")
        self.user = user
        self.workdir = PurePosixPath("/var/lib/armload", user)

    def up(self) -> None:
        self.machine.up()
        with closing(self.root()) as host:
            done = host.run(f"mkdir -p {self.workdir} && chown {self.user} {self.workdir}")
            assert done.status == 0, done
        reach = self.machine.board(self.user, self.workdir).reach
        assert reach.kind == "ssh"
        self.person.add_board(
            "far",
            f"target: rk3568\nworkdir: {self.workdir}\nreach:\n  kind: ssh\n  host: 127.0.0.1\n"
            f"  port: {reach.port}\n  user: {self.user}\n  key: {reach.key}\n",
        )
        self.person.types("board.trust", "--board", "far", "--yes")

    def root(self) -> Host:
        return self.machine.host("root")

    def boots_again(self) -> None:
        self.machine.cut_the_power()
        self.machine.up()

    def status(self) -> dict[str, Any]:
        board = json.loads(self.person.types("service.status", *ON, "--json").stdout)
        (found,) = board["services"]
        return dict(found)

    def is_ready(self) -> bool:
        return bool(self.status()["condition"] == "ready")

    def is_answered(self) -> bool:
        """Talk to the installed service alone."""
        words = ("--board", "far", "--service", NAME, "--n-predict", "4")
        said = json.loads(self.person.chats("Once", *words).stdout)
        return bool(said["outcome"] == "ok" and said["answer"])


@pytest.fixture
def owner(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Owner]:
    distribution, user = request.param
    owner = Owner(tmp_path, distribution, user)
    try:
        owner.up()
        yield owner
    finally:
        owner.machine.cut_the_power()
        (owner.folder / "disk.img").unlink()


def lives(owner: Owner, init: InitName) -> None:
    """Install a service, boot, stop, boot, restart, update, roll back and remove it."""
    person = owner.person
    words = ("service.install", *ON, *SETTINGS, "--init", init, "--json")
    first = json.loads(person.types(*words).stdout)["record"]
    assert first["init"] == init
    assert owner.is_answered()
    owner.boots_again()
    wait_until(owner.is_ready, within_s=READY_WITHIN_S)
    assert owner.is_answered()
    person.types("service.stop", *ON)
    assert owner.status()["condition"] == "stopped"
    person.types("service.restart", *ON)
    wait_until(owner.is_ready, within_s=READY_WITHIN_S)
    updated = json.loads(
        person.types("service.update", *ON, "--slots", "2", "--slower", "90%", "--json").stdout
    )
    assert updated["former"] == first["id"]
    assert owner.is_answered()
    person.types("service.rollback", *ON)
    owner.boots_again()
    wait_until(owner.is_ready, within_s=READY_WITHIN_S)
    assert owner.status()["version"] == first["id"]
    assert owner.is_answered()
    person.types("service.remove", *ON)
    with closing(owner.root()) as host:
        left = host.run(
            f"ls {owner.workdir}/services; cat /proc/[0-9]*/cmdline | tr '\\0' '\\n' | "
            f"grep -e '[t]{NAME[1:]}' -e 'llama-[s]erver' | grep -v grep; "
            f"find /etc /home /var/spool -name '*armload-{NAME}*'; grep armload- /etc/passwd"
        )
    assert left.text == ""


def check_that_it_lingers_first(owner: Owner) -> None:
    """Without root's permission to linger, nothing is installed, and the remedy works as typed."""
    words = ("service.install", *ON, *SETTINGS, "--init", "systemd-user")
    refused = owner.person.types(*words, status=7).stderr
    assert "loginctl enable-linger pi" in " ".join(refused.split())
    with closing(owner.root()) as host:
        assert host.run("loginctl enable-linger pi").status == 0


@pytest.mark.parametrize(
    ("owner", "init"),
    [
        pytest.param((SYSTEMD, "pi"), "systemd", id="systemd"),
        pytest.param((SYSTEMD, "pi"), "systemd-user", id="systemd-user"),
        pytest.param((OPENRC, "pi"), "openrc", id="openrc"),
        pytest.param((OPENRC, "pi"), "cron", id="cron"),
        pytest.param((SYSV, "root"), "sysv", id="sysv"),
    ],
    indirect=["owner"],
)
def test_a_service_answers_after_each_boot_until_it_is_removed(
    owner: Owner, init: InitName
) -> None:
    if init == "systemd-user":
        check_that_it_lingers_first(owner)
    lives(owner, init)
