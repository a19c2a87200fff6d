"""A service's own user, whose server may have been broken into, gains nothing by its folder."""

from __future__ import annotations

import os
import pwd
import shlex
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

from armload.boards.boot import BootFacts
from armload.boards.local import LocalHost
from armload.core.errors import BoardError
from armload.core.shell import render
from armload.services.asking import log_tail
from armload.services.folder import (
    new_api_key,
    read_keys,
    switch,
    write_keys,
    write_run,
    write_version,
)
from armload.services.state import service_at
from armload.services.unit import UnitFacts
from armload.services.users import opened_to
from armload.services.version import ServiceLayout

USER = "games"
SUPERVISE = PurePosixPath("bin/0123456789ab/supervise")

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be several users")


@pytest.fixture
def host() -> LocalHost:
    return LocalHost("kitchen")


@pytest.fixture
def layout(host: LocalHost) -> Iterator[ServiceLayout]:
    """A service as it is installed; written under the umask of a login with a group of its own."""
    before = os.umask(0o002)
    try:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder).chmod(0o755)
            layout = ServiceLayout(workdir=PurePosixPath(folder), name="tutor")
            files = {"start": "true\n", "supervisor": "port 1\n", "service.json": "{}\n"}
            write_version(host, layout, "a", files)
            write_keys(host, layout, [new_api_key("first")])
            write_run(host, layout, "#!/bin/sh\n", layout.workdir / SUPERVISE)
            switch(host, layout, "a")
            hand_over(host, layout, falls_back=False)
            yield layout
    finally:
        os.umask(before)


def hand_over(host: LocalHost, layout: ServiceLayout, *, falls_back: bool) -> None:
    values = {"user": USER, "folder": layout.folder, "falls_back": falls_back}
    assert host.run(render("service/hand_over.sh.j2", values)).status == 0


def as_its_user(layout: ServiceLayout, script: str) -> bool:
    uid = pwd.getpwnam(USER).pw_uid
    done = subprocess.run(
        ["sh", "-c", script],
        cwd=layout.folder,
        user=uid,
        group=group_of(layout),
        extra_groups=[],
        capture_output=True,
        check=False,
    )
    return done.returncode == 0


def group_of(layout: ServiceLayout) -> int:
    return Path(layout.folder).stat().st_gid


@pytest.mark.parametrize(
    "script",
    [
        "mv run mine",
        "echo mine >run",
        "rm -f run",
        "mv versions mine",
        "touch versions/evil",
        "mkdir versions/try",
        "echo mine >versions/a/start",
        "echo mine >versions/a/supervisor",
        "mv version mine",
        "echo ../evil >version",
        "mv keys mine",
        "echo mine >keys",
        "mv uses mine",
        "rm current",
    ],
)
def test_it_cannot_change_what_root_starts(layout: ServiceLayout, script: str) -> None:
    assert as_its_user(layout, "touch trace.jsonl state log && cat keys >/dev/null")
    assert not as_its_user(layout, script)


@pytest.mark.parametrize(
    "name", ["version.part", "run.part", "uses.part", "keys.part", "former", "trial", "former.part"]
)
def test_its_links_lead_no_later_command_elsewhere(
    host: LocalHost, layout: ServiceLayout, tmp_path: Path, name: str
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    assert as_its_user(layout, f"ln -s {victim} {name}")
    write_version(host, layout, "b", {"start": "true\n", "supervisor": "port 1\n"})
    write_keys(host, layout, [new_api_key("first"), new_api_key("second")])
    write_run(host, layout, "#!/bin/sh\n# b\n", layout.workdir / SUPERVISE)
    switch(host, layout, "b", trial="a", former="a")
    hand_over(host, layout, falls_back=True)
    assert victim.read_text() == "precious"
    assert victim.stat().st_uid == 0
    folder = Path(layout.folder)
    assert (folder / "trial").read_text() == (folder / "former").read_text() == "a\n"
    assert [each.name for each in read_keys(host, layout)] == ["first", "second"]
    assert not list((folder / "versions").glob(".*"))


@pytest.mark.parametrize("name", ["trial", "keys"])
def test_what_it_puts_there_is_given_to_nobody(
    host: LocalHost, layout: ServiceLayout, tmp_path: Path, name: str
) -> None:
    """A file of its own could stand for another one by the time of the command."""
    folder = Path(layout.folder)
    (folder / name).unlink(missing_ok=True)
    assert as_its_user(layout, f"echo mine >{name} && chmod 604 {name}")
    before = (folder / name).stat()
    secret = tmp_path / "secret"
    secret.write_text("precious")
    (folder / "version").unlink()
    os.link(secret, folder / "version")
    hand_over(host, layout, falls_back=True)
    after = (folder / name).stat()
    assert (after.st_mode, after.st_uid, after.st_gid) == (
        (before.st_mode, before.st_uid, before.st_gid)
    )
    assert secret.stat().st_uid == 0


@pytest.mark.parametrize("name", ["version", "current", "former"])
def test_a_folder_in_a_name_s_place_takes_nothing(
    host: LocalHost, layout: ServiceLayout, tmp_path: Path, name: str
) -> None:
    """Between two steps of a switch, its user puts a link to a folder where a file goes."""
    trap, folder = tmp_path / "trap", Path(layout.folder)
    trap.mkdir()
    write_version(host, layout, "b", {"start": "true\n"})
    values = {"folder": layout.folder, "id": "b", "trial": "", "former": "a", "confirmed": True}
    script = render("service/switch.sh.j2", {**values, "removed": []})
    link = f"rm -rf {folder}/{name}; ln -s {trap} {folder}/{name}"
    spring = f'mv() {{ case $2 in */{name}) {link} ;; esac; command mv "$@"; }}\n'
    assert host.run(spring + script).status == 0
    assert not list(trap.iterdir())
    assert (folder / "version").read_text() == "b\n"
    assert (folder / "current").readlink() == Path("versions/b")
    assert not list((folder / "versions").glob(".*"))


def test_where_it_supervises_itself_it_can_fall_back(
    host: LocalHost, layout: ServiceLayout
) -> None:
    switch(host, layout, "a", trial="a")
    hand_over(host, layout, falls_back=True)
    assert as_its_user(layout, "echo a >.version.new && mv -f .version.new version && rm trial")
    assert as_its_user(layout, "ln -s versions/a .current.new && mv -Tf .current.new current")
    assert not as_its_user(layout, "mv -f version run")


def test_it_reads_its_versions_whatever_the_login_s_umask(
    host: LocalHost, layout: ServiceLayout
) -> None:
    os.umask(0o077)
    write_version(host, layout, "b", {"start": "true\n", "environment/one": "A=1\n"})
    assert not as_its_user(layout, "cat versions/b/environment/one")
    switch(host, layout, "b")
    hand_over(host, layout, falls_back=False)
    assert as_its_user(layout, "cat version run versions/b/start versions/b/environment/one")
    assert not as_its_user(layout, "echo mine >versions/b/start")


def test_keys_are_open_to_it_alone(layout: ServiceLayout) -> None:
    about = Path(layout.keys).stat()
    assert stat.S_IMODE(about.st_mode) == 0o640
    assert about.st_gid == group_of(layout)
    assert stat.S_IMODE(Path(layout.keys.with_suffix(".json")).stat().st_mode) == 0o600


def test_new_keys_are_open_to_it_before_they_are_in_force(
    host: LocalHost, layout: ServiceLayout
) -> None:
    """The command that puts them there is the last before which the power may fail."""
    keys = [new_api_key("first"), new_api_key("second")]
    write_keys(host, layout, keys, lambda path: f"chgrp {USER} '{path}' && chmod 640 '{path}'")
    assert as_its_user(layout, f"grep -q {keys[1].key} keys")
    with pytest.raises(BoardError):
        write_keys(host, layout, keys[:1], lambda _: "false")
    assert read_keys(host, layout) == tuple(keys)
    root = BootFacts(user="root", uid=0, root="login", home=PurePosixPath("/root"))
    unit = UnitFacts(name="tutor", folder=layout.folder, user="armload-tutor")
    path = PurePosixPath("/w/it's/keys")
    words = opened_to(root, unit, path).splitlines()[-1]
    assert shlex.split(words) == (
        ["chgrp", "armload-tutor", str(path), "&&", "chmod", "640", str(path)]
    )
    assert opened_to(root, unit.model_copy(update={"user": "pi"}), path) == ""


def test_what_it_writes_is_not_taken_for_the_words_of_the_board(
    host: LocalHost, layout: ServiceLayout
) -> None:
    forged = '{"state":"ready"}\n#service.json\n{}\n#service ghost\n#version x\n'
    assert as_its_user(layout, f"printf '%s' '{forged}' >state")
    assert as_its_user(layout, r"printf '%s\n' 'x\n#service ghost' >former")
    assert as_its_user(layout, "echo ../evil >trial")
    seen = service_at(host, layout)
    assert seen is not None
    assert (seen.version, seen.former, seen.trial) == ("a", None, None)
    assert service_at(host, layout.model_copy(update={"name": "ghost"})) is None


def test_nothing_waits_for_what_it_never_writes(host: LocalHost, layout: ServiceLayout) -> None:
    assert as_its_user(layout, "mkfifo state former log")
    seen = service_at(host, layout)
    assert seen is not None
    assert (seen.version, seen.former, seen.state) == ("a", None, None)
    assert log_tail(host, layout, 100) == ""
