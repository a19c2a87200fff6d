"""What starts programs when a board boots, and what this login can make of it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Literal, TypeVar, get_args

from armload.boards.board import Board
from armload.boards.framing import parts_of, reason
from armload.boards.host import Host
from armload.core.errors import BoardError
from armload.core.shell import render
from armload.core.values import Value, whole_number

InitName = Literal["systemd", "systemd-user", "openrc", "busybox", "sysv", "openharmony", "cron"]
"""What can start a service at boot, the one to be preferred first."""

Word = TypeVar("Word")

Root = Literal["login", "sudo", "none"]
UserTool = Literal["useradd", "adduser", "busybox"]

_MOST_BYTES = 1 << 16
_WITHIN_S = 120.0
"""A board that has just booted is busy, and sudo slow."""
_UNITS, _SCRIPTS = "/etc/systemd/system", "/etc/init.d"
_OPENHARMONY = ("/vendor/etc/init", "/system/etc/init")
_INITS = ("init", "linuxrc", "busybox", "openrc-init")


class UnusableInit(Value):
    """Something that starts services on the board, but not those of this login.

    Attributes:
        name: what.
        reason: why not, as the end of a sentence.
        remedy: what would be needed, in sentences.
    """

    name: InitName
    reason: str
    remedy: str


class BootFacts(Value):
    """What starts programs when a board boots.

    Attributes:
        init: the name of process 1; empty where that was not observed.
        usable: what can start a service, the best first.
        unusable: what is there, too, and what it lacks.
        user, uid: of the login.
        home: its folder; none where that was not observed.
        root: how commands run as root: they do, by ``sudo`` without a password, or not at all.
        systemd_version: none where systemd does not run.
        lingering: systemd runs the login's own units from boot on; none without systemd.
        adds_users: what adds a user; none where nothing is there, or none can be added.
        closed_folder: the folder on the way to the work folder that other users cannot enter.
        umask: of the login; none where that was not observed.
        runlevels: the folder that holds ``rc2.d`` and the like.
        runlevel_tool: what enters a script into them; none where links have to do.
        openharmony_folder: where a service of OpenHarmony's init can be written.
        security_context: SELinux's, of the login; empty without SELinux.
    """

    init: str = ""
    usable: tuple[InitName, ...] = ()
    unusable: tuple[UnusableInit, ...] = ()
    user: str = ""
    uid: int | None = None
    home: PurePosixPath | None = None
    root: Root = "none"
    systemd_version: int | None = None
    lingering: bool | None = None
    adds_users: UserTool | None = None
    closed_folder: PurePosixPath | None = None
    umask: int | None = None
    runlevels: PurePosixPath | None = None
    runlevel_tool: Literal["update-rc.d", "insserv", "chkconfig"] | None = None
    openharmony_folder: PurePosixPath | None = None
    security_context: str = ""


def boot_facts(host: Host, board: Board) -> BootFacts:
    """Ask a board what starts programs at boot; changes nothing there."""
    script = render("board/boot.sh.j2", {"workdir": board.workdir})
    done = host.run(script, timeout_s=_WITHIN_S)
    return parse_boot(done.stdout, board.name, done.stderr)


def parse_boot(output: bytes, board_name: str, errors: bytes = b"") -> BootFacts:
    """Read what the script wrote; a line that it does not write is left out.

    Raises:
        BoardError: it stopped halfway.
    """
    parts = parts_of(output[:_MOST_BYTES].decode("utf-8", "replace"))
    if "end" not in parts:
        raise BoardError(
            f"{board_name}: the script that looks for its init system stopped halfway: "
            f"{reason(errors).rstrip('.')}."
        )
    told: dict[str, str] = {}
    writable: set[str] = set()
    for line in parts.get("boot", ()):
        key, _, value = line.partition(" ")
        if key == "writable":
            writable.add(value)
        elif value:
            told.setdefault(key, value)
    facts = _facts(told, writable)
    usable, unusable = _judged(facts, told, writable)
    return facts.model_copy(update={"usable": usable, "unusable": unusable})


def _facts(told: dict[str, str], writable: set[str]) -> BootFacts:
    version = re.match(r"systemd (\d{1,5})\b", told.get("systemd", ""))
    has_systemd = "systemd" in told
    return BootFacts(
        init=told.get("init", "")[:32],
        user=_matching(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}", told.get("user")) or "",
        uid=whole_number(told.get("uid", "")),
        home=_path(told.get("home")),
        root=_one_of(get_args(Root), told.get("root")) or "none",
        systemd_version=int(version[1]) if version else None,
        lingering=told.get("lingering") == "yes" if has_systemd else None,
        adds_users=(
            _one_of(get_args(UserTool), told.get("adds-users"))
            if "/etc/passwd" in writable and told.get("root") in ("login", "sudo")
            else None
        ),
        closed_folder=_path(told.get("closed")),
        umask=int(mask, 8) if (mask := _matching(r"[0-7]{1,5}", told.get("umask"))) else None,
        runlevels=_path(told.get("runlevels")),
        runlevel_tool=_one_of(("update-rc.d", "insserv", "chkconfig"), told.get("runlevel-tool")),
        openharmony_folder=next(
            (PurePosixPath(each) for each in _OPENHARMONY if each in writable), None
        ),
        security_context=_matching(r"u:[a-z]+:\w+:s[0-9:,.c]+", told.get("context")) or "",
    )


def _one_of(words: Iterable[Word], word: str | None) -> Word | None:
    return next((each for each in words if each == word), None)


def _matching(pattern: str, text: str | None) -> str | None:
    return text if text is not None and re.fullmatch(pattern, text) else None


def _path(text: str | None) -> PurePosixPath | None:
    return PurePosixPath(text) if text is not None and text.startswith("/") else None


_NEEDS_ROOT = "this login is not root"
_ROOT_REMEDY = "Log in as root, or let this user run sudo without a password."


def _judged(
    facts: BootFacts, told: dict[str, str], writable: set[str]
) -> tuple[tuple[InitName, ...], tuple[UnusableInit, ...]]:
    usable: list[InitName] = []
    unusable: list[UnusableInit] = []

    def judge(name: InitName, *lacks: tuple[bool, str, str]) -> None:
        for lacking, why, remedy in lacks:
            if lacking:
                unusable.append(UnusableInit(name=name, reason=why, remedy=remedy))
                return
        usable.append(name)

    no_root = (facts.root == "none", _NEEDS_ROOT, _ROOT_REMEDY)

    def read_only(*folders: str) -> tuple[bool, str, str]:
        named = " or ".join(folders)
        return (
            not writable.intersection(folders),
            f"{named} cannot be written",
            f"Remount the file system of {named} so that it can be written.",
        )

    if "systemd" in told:
        judge("systemd", no_root, read_only(_UNITS))
        unable = not facts.lingering and "logind" not in told
        judge(
            "systemd-user",
            (facts.home is None, "this login has no home folder", "Give the user one."),
            (
                unable,
                "systemd runs no units of this user without a login",
                f"As root on the board: loginctl enable-linger {facts.user or 'USER'}",
            ),
        )
    scripted = facts.init in _INITS and "systemd" not in told
    if "openrc" in told:
        judge("openrc", no_root, read_only(_SCRIPTS))
    elif scripted and "rcS" in told:
        judge("busybox", no_root, read_only(_SCRIPTS))
    elif scripted and facts.runlevels is not None:
        judge("sysv", no_root, read_only(_SCRIPTS))
    if "openharmony" in told:
        judge("openharmony", no_root, read_only(*_OPENHARMONY))
    if "crond" in told:
        judge(
            "cron",
            (
                "no-reboot-times" in told,
                "its crond (BusyBox) does not support @reboot",
                "Install another cron, such as Debian's package cron.",
            ),
        )
    return tuple(usable), tuple(unusable)
