"""A service of one of a board's users, and what another user of the board sees and may do."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from armload.boards.board import SshAddress, load_board
from armload.boards.connect import connect
from armload.core.progress import Silent
from armload.deploy.lease import leased
from tests.cron_stand_in import cron
from tests.person import Person
from tests.servers import openssh
from tests.system.serving import in_place_of

pytestmark = [
    pytest.mark.build,
    pytest.mark.skipif(os.geteuid() != 0, reason="takes root, to add users"),
    pytest.mark.timeout(1800),
    pytest.mark.exhaustive(covers=["armload/services", "deploy/service", "toolchains/board"]),
]

NAMES = ("armann", "armbob")
ONE = ("--concurrency", "1", "--requests", "1")
CHANGES = [
    *(("stop",), ("restart",), ("update",), ("rollback",), ("keys", "--add", "new"), ("remove",)),
]
SETTINGS = ("--model", "word-problems:Q8_0", "--threads", "1", "--slots", "1", "--context", "256")


class Login:
    """Somebody with a user of their own on the board, which is this machine."""

    def __init__(self, folder: Path, user: str, address: SshAddress, workdir: Path) -> None:
        self.user = user
        self.person = Person(folder / user)
        self.person.environment["XDG_STATE_HOME"] = str(self.person.folder / "state")
        self.person.add_board(
            "far",
            f"target: host\nworkdir: {workdir}\nreach:\n  kind: ssh\n  host: 127.0.0.1\n"
            f"  port: {address.port}\n  user: {user}\n  key: {address.key}\n",
        )
        self.person.types("board.trust", "--board", "far", "--yes")

    def types(self, verb: str, *words: str, status: int = 0, name: str = "tutor") -> Any:
        on = ("--board", "far", "--name", name)
        done = self.person.types(f"service.{verb}", *on, *words, "--json", status=status)
        return json.loads(done.stdout) if status == 0 else " ".join(done.stderr.split())

    def services(self) -> list[dict[str, Any]]:
        done = self.person.types("service.list", "--board", "far", "--json")
        return [dict(each) for each in json.loads(done.stdout)]

    def status(self, name: str = "tutor") -> dict[str, Any]:
        (found,) = self.types("status", name=name)["services"]
        return dict(found)


@contextmanager
def users(folder: Path, stack: ExitStack) -> Iterator[None]:
    """Add users whose shell reads a common start file, and finds a cron of their own."""
    (folder / "start").write_text("umask 022\n")
    try:
        for user in NAMES:
            variables, _ = stack.enter_context(cron(folder / f"{user}-cron"))
            shell, home = folder / f"{user}-shell", folder / f"{user}-home"
            shell.write_text(
                f'#!/bin/sh\nPATH={variables["PATH"]}\n. {folder / "start"}\nexec /bin/sh "$@"\n'
            )
            shell.chmod(0o755)
            # A server without PAM refuses users whose password is locked.
            words = ["useradd", "-M", "-p", "*", "-d", str(home), "-g", "users", "-s", str(shell)]
            if subprocess.run([*words, user], check=False).returncode != 0:
                pytest.skip("this machine cannot add a user")
            home.mkdir()
            for each in (home, folder / f"{user}-cron"):
                shutil.chown(each, user, "users")
        yield
    finally:
        uids = {each.pw_uid for each in pwd.getpwall() if each.pw_name in NAMES}
        for process in psutil.process_iter(["uids"]):
            if process.info["uids"].real in uids:
                process.kill()
        for user in NAMES:
            subprocess.run(["userdel", user], check=False, capture_output=True)


@pytest.fixture(scope="module")
def logins(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Login, Login, Path]]:
    home = tmp_path_factory.mktemp("two-logins")
    with ExitStack() as stack:
        # Other users cannot enter pytest's folders.
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="two-logins-")))
        folder.chmod(0o755)
        stack.enter_context(users(folder, stack))
        address = stack.enter_context(openssh(folder / "ssh"))
        (folder / "ssh").chmod(0o755)
        workdir = folder / "board"
        workdir.mkdir()
        shutil.chown(workdir, NAMES[0], "users")
        ann, bob = (Login(home, user, address, workdir) for user in NAMES)
        try:
            yield ann, bob, workdir
        finally:
            for login in (ann, bob):
                for each in login.services():
                    if each["installed"]["owner"] == "":
                        login.types("remove", name=each["name"])


@pytest.fixture(scope="module")
def tutor(logins: tuple[Login, Login, Path]) -> dict[str, Any]:
    """Ann's service, in a work folder that she alone can write."""
    return dict(logins[0].types("install", *SETTINGS, "--init", "cron"))


def test_another_user_sees_it_and_is_told_whose_it_is(
    logins: tuple[Login, Login, Path], tutor: dict[str, Any]
) -> None:
    ann, bob, _ = logins
    (listed,) = bob.services()
    assert (listed["name"], listed["condition"]) == ("tutor", "ready")
    seen, own = bob.status(), ann.status()
    assert (seen["owner"], own["owner"]) == (ann.user, None)
    assert (seen["version"], seen["condition"]) == (tutor["record"]["id"], "ready")
    assert (seen["unit"], seen["activity"]) == (None, [])
    assert (own["unit"], len(own["activity"])) == ("installed", 1)
    shown = " ".join(bob.person.types("service.status", "--board", "far").stdout.split())
    assert f"far, tutor: it belongs to the user {ann.user}" in shown
    assert "missing" not in shown


@pytest.mark.parametrize("words", CHANGES, ids=" ".join)
def test_another_user_cannot_change_it(
    logins: tuple[Login, Login, Path], tutor: dict[str, Any], words: tuple[str, ...]
) -> None:
    ann, bob, workdir = logins
    said = bob.types(*words, "--wait", "0", status=7)
    assert f"belongs to the user {ann.user}, so this login cannot change it" in said
    assert f"Log in to far as {ann.user} or root." in said
    assert not list((workdir / "lease").iterdir())
    assert ann.status()["version"] == tutor["record"]["id"]
    assert ann.status()["condition"] == "ready"


def test_another_user_does_not_see_its_keys(
    logins: tuple[Login, Login, Path], tutor: dict[str, Any]
) -> None:
    del tutor
    for verb in (("service.keys", "--name", "tutor"), ("load", "--service", "tutor", *ONE)):
        done = logins[1].person.types(*verb, "--board", "far", status=7)
        said = " ".join(done.stderr.split())
        assert "keys cannot be read" in said
        assert "Log in as the user that installed the service" in said


def test_what_another_user_cannot_write_is_named(
    logins: tuple[Login, Login, Path], tutor: dict[str, Any]
) -> None:
    del tutor
    _, bob, workdir = logins
    said = bob.types("install", *SETTINGS, "--init", "cron", status=2)
    assert f"already has a service named tutor, of the user {NAMES[0]}" in said
    said = bob.types("install", *SETTINGS, "--init", "cron", status=7, name="second")
    assert f"{workdir} cannot be written" in said
    assert "ermission denied" in said


def test_in_a_shared_work_folder_both_have_services_and_wait_for_each_other(
    logins: tuple[Login, Login, Path], tutor: dict[str, Any]
) -> None:
    ann, bob, workdir = logins
    (workdir.parent / "start").write_text("umask 002\n")
    for each in (workdir, workdir / "services", *workdir.glob("[blm]*")):
        each.chmod(0o2775)
    second = bob.types("install", *SETTINGS, "--init", "cron", name="second")
    assert second["record"]["listening"]["port"] != tutor["record"]["listening"]["port"]
    assert {each["name"]: each["installed"]["owner"] for each in ann.services()} == {
        "tutor": "",
        "second": bob.user,
    }
    with in_place_of(bob.person):
        board = load_board("far")
        with (
            closing(connect(board, Silent())) as host,
            leased(
                *(host, board.workdir, Silent()),
                wait_s=0,
                beside=lambda: connect(board, Silent()),
            ),
        ):
            for words in CHANGES:
                assert "is in use by" in ann.types(*words, "--wait", "0", status=10)
    updated = ann.types("update", "--slots", "2", "--slower", "90%")
    assert updated["former"] == tutor["record"]["id"]
    assert ann.types("rollback")["version"] == tutor["record"]["id"]
    assert bob.status("second")["condition"] == ann.status()["condition"] == "ready"
    bob.types("remove", name="second")
    assert [each["name"] for each in ann.services()] == ["tutor"]
