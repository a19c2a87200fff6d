"""What starts programs at boot is found, and what was not observed is unknown."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path, PurePosixPath

import pytest

from armload.boards.boot import BootFacts, parse_boot
from armload.core.errors import BoardError
from armload.core.shell import render
from tests.sysfs import write_tree

SHELLS = (["dash"], ["mksh"], ["busybox", "sh"])


def told(*lines: str) -> BootFacts:
    text = "\n".join(("#armload boot", *lines, "#armload end", ""))
    return parse_boot(text.encode(), "kitchen")


DEBIAN = (
    "init systemd",
    "uid 1000",
    "user pi",
    "home /home/pi",
    "umask 0022",
    "root none",
    "systemd systemd 257 (257.9-1~deb13u1)",
    "logind yes",
    "crond cron",
)


def test_a_board_with_systemd_prefers_a_unit_of_the_system() -> None:
    facts = told(
        *DEBIAN[:5], "root sudo", *DEBIAN[6:], "writable /etc/systemd/system", "lingering yes"
    )
    assert facts.usable == ("systemd", "systemd-user", "cron")
    assert (facts.root, facts.systemd_version, facts.lingering) == ("sudo", 257, True)
    assert facts.home == PurePosixPath("/home/pi")
    assert facts.umask == 0o022
    assert not facts.unusable


def test_without_root_the_user_s_own_units_remain_and_the_lack_is_said() -> None:
    facts = told(*DEBIAN)
    assert facts.usable == ("systemd-user", "cron")
    assert facts.lingering is False
    (lack,) = facts.unusable
    assert lack.name == "systemd"
    assert "not root" in lack.reason
    assert "sudo" in lack.remedy


def test_units_of_a_user_need_lingering_or_something_that_allows_it() -> None:
    facts = told(*(line for line in DEBIAN if not line.startswith(("logind", "crond"))))
    assert not facts.usable
    assert "loginctl enable-linger pi" in facts.unusable[1].remedy


@pytest.mark.parametrize(
    ("lines", "usable"),
    [
        (("init init", "rcS yes", "writable /etc/init.d"), ("busybox",)),
        (("init init", "rcS yes", "runlevels /etc", "writable /etc/init.d"), ("busybox",)),
        (("init init", "runlevels /etc", "writable /etc/init.d"), ("sysv",)),
        (("init init", "openrc yes", "runlevels /etc", "writable /etc/init.d"), ("openrc",)),
        (("init init", "openharmony yes", "writable /vendor/etc/init"), ("openharmony",)),
        (("init init", "runlevels /etc"), ()),
        (("init init", "openharmony yes"), ()),
        (("init sshd", "runlevels /etc", "writable /etc/init.d"), ()),
        (("init init", "crond crond"), ("cron",)),
        (("init init", "crond crond", "no-reboot-times yes"), ()),
        (("init sleep",), ()),
    ],
)
def test_what_is_there_decides(lines: tuple[str, ...], usable: tuple[str, ...]) -> None:
    assert told("root login", "user root", *lines).usable == usable


@pytest.mark.parametrize(
    ("root", "writable", "tool"),
    [
        ("login", "/etc/passwd", "useradd"),
        ("sudo", "/etc/passwd", "useradd"),
        ("none", "/etc/passwd", None),
        ("login", "/etc/systemd/system", None),
    ],
)
def test_users_are_added_only_as_root_where_their_file_is_writable(
    root: str, writable: str, tool: str | None
) -> None:
    facts = told(f"root {root}", "adds-users useradd", f"writable {writable}")
    assert facts.adds_users == tool


def test_what_was_not_observed_is_unknown() -> None:
    assert told() == BootFacts()


def test_what_is_no_fact_is_left_out() -> None:
    facts = told(
        "root maybe",
        "uid -1",
        "user $(id)",
        "home sweet home",
        "umask 99",
        "systemd forty",
        "adds-users make-user",
        "closed relative",
        "context u:r:su:s0; reboot",
        "runlevel-tool rm",
        "init " + "x" * 5000,
        "\x1b[2J",
    )
    assert facts.model_copy(update={"init": "", "lingering": None}) == BootFacts(
        unusable=facts.unusable
    )
    assert len(facts.init) <= 32


def test_a_script_that_stops_halfway_and_one_without_end_are_errors() -> None:
    with pytest.raises(BoardError, match="stopped halfway: sh: id: not found"):
        parse_boot(b"#armload boot\ninit init\n", "kitchen", b"sh: sh: id: not found\n")
    endless = b"#armload boot\n" + b"init init\n" * 100_000 + b"#armload end\n"
    with pytest.raises(BoardError, match="stopped halfway"):
        parse_boot(endless, "kitchen")


def observed(shell: list[str], root: Path, workdir: PurePosixPath) -> BootFacts:
    """Run the script on a board whose files are below a folder."""
    if shutil.which(shell[0]) is None:
        pytest.skip(f"{shell[0]} is not installed")
    script = render("board/boot.sh.j2", {"workdir": workdir})
    shown = re.sub(
        r"(?<![\w}.])/(etc|run|var|proc|system|vendor)/",
        lambda match: f"{root}{match[0]}",
        script.replace("PATH=$PATH:/usr/sbin:/sbin", f"PATH={root}/bin:$PATH"),
    )
    done = subprocess.run([*shell, "-c", shown], capture_output=True, check=False, timeout=60)
    assert not done.stderr, done.stderr
    return parse_boot(done.stdout.replace(str(root).encode() + b"/", b"/"), "kitchen")


def program(root: Path, name: str, text: str = "true") -> None:
    write_tree(root, {f"bin/{name}": f"#!/bin/sh\n{text}"})
    (root / "bin" / name).chmod(0o755)


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_every_shell_finds_what_is_there(shell: list[str], tmp_path: Path) -> None:
    root, workdir = tmp_path / "root", tmp_path / "it's 100% closed" / "armload"
    workdir.mkdir(parents=True)
    workdir.parent.chmod(0o750)
    for each in (tmp_path, *tmp_path.parents[:-1]):
        each.chmod(each.stat().st_mode | 0o011)
    write_tree(root, {"proc/1/comm": "init", "proc/77/comm": "crond", "proc/8/comm": "kthreadd"})
    write_tree(root, {"etc/init.d/rcS": "for i in /etc/init.d/S??* ;do $i start; done"})
    write_tree(root, {"vendor/etc/init/hdcd.cfg": "{}"})
    program(root, "crontab")
    program(root, "useradd")
    facts = observed(shell, root, PurePosixPath(workdir))
    assert facts.init == "init"
    assert facts.closed_folder is not None
    assert facts.closed_folder.name == "it's 100% closed"
    if facts.root == "login":
        assert facts.usable == ("busybox", "openharmony", "cron")
        assert facts.openharmony_folder == PurePosixPath("/vendor/etc/init")


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_every_shell_finds_systemd_and_who_lingers(shell: list[str], tmp_path: Path) -> None:
    root = tmp_path
    user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
    write_tree(root, {"proc/1/comm": "systemd", f"var/lib/systemd/linger/{user}": ""})
    for folder in ("run/systemd/system", "run/systemd/users", "etc/systemd/system"):
        (root / folder).mkdir(parents=True)
    program(root, "systemctl", "echo 'systemd 257 (257.9-1~deb13u1)'; yes +PAM")
    program(root, "loginctl")
    facts = observed(shell, root, PurePosixPath("/"))
    assert facts.systemd_version == 257
    assert facts.lingering is True
    assert "systemd-user" in facts.usable


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_a_container_without_an_init_has_nothing(shell: list[str], tmp_path: Path) -> None:
    write_tree(tmp_path, {"proc/1/comm": "sleep", "etc/init.d/README": ""})
    (tmp_path / "etc/rc2.d").mkdir()
    facts = observed(shell, tmp_path, PurePosixPath("/"))
    assert facts.init == "sleep"
    assert not facts.usable
    assert not facts.unusable
