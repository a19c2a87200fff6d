"""Telling a board's init system of a service, and taking it back."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Literal

from armload.boards.boot import BootFacts
from armload.boards.framing import reason
from armload.boards.host import Host
from armload.core.errors import BoardError, UsageError
from armload.core.shell import join, quote, render
from armload.core.values import Value, whole_number
from armload.services.init_systems import InitSystem, commanded, told
from armload.services.unit import Presence, UnitFacts, mark, presence
from armload.services.users import ensure_user, hand_over, remove_user

_MOST_BYTES = 1 << 16
_WITHIN_S = 90.0
"""Until a command of an init system has ended; stopping a service takes up to 30 s."""

Change = Literal["written", "same", "kept"]
"""Of a unit by installing it: kept is one that somebody has edited."""


class UnitState(Value):
    """What a board has of a service's unit.

    Attributes:
        presence: of the unit; edited where one of its files is.
        is_active: the service runs, or is being started.
        edited: the files that somebody has edited, or the table.
        memory_max_bytes: the kernel's limit for what runs; none where it has none.
    """

    presence: Presence
    is_active: bool
    edited: tuple[PurePosixPath | str, ...] = ()
    memory_max_bytes: int | None = None


def unit_state(host: Host, facts: BootFacts, init: InitSystem, unit: UnitFacts) -> UnitState:
    """Look what a board has of a service's unit."""
    found = _found(host, facts, init, unit)
    status = host.run(commanded(init.is_active(unit), init, facts), timeout_s=_WITHIN_S).status
    edited = tuple(where for where, each in found.items() if _presence(each, unit) == "edited")
    kinds = [_presence(each, unit) for each in found.values()]
    worst: Presence = next(
        (each for each in ("another's", "edited", "installed") if each in kinds), "absent"
    )
    limit = None
    if status == 0 and (command := init.memory_limit(unit)):
        limit = whole_number(host.run(commanded(command, init, facts)).text)
    return UnitState(presence=worst, is_active=status == 0, edited=edited, memory_max_bytes=limit)


def install_unit(
    host: Host, facts: BootFacts, init: InitSystem, unit: UnitFacts, *, overwrite: bool
) -> Change:
    """Have a service started at boot; it is not started now.

    Its user is made and its folder is given to it, where it has one of its own. A unit that
    somebody has edited is kept.

    Args:
        overwrite: also what somebody has edited, or written under this name by other means.

    Raises:
        UsageError: a service of that name belongs to another work folder.
        BoardError: the board refuses.
    """
    files = {file.path: file for file in init.files(unit)}
    entry = init.entry(unit)
    found = _found(host, facts, init, unit)
    for where, text in found.items():
        if _presence(text, unit) == "another's" and not overwrite:
            raise UsageError(
                f"{host.name}: {where} already exists and does not belong to {unit.folder}.",
                "Choose another --name, or use --overwrite to replace it.",
            )
    if command := init.prepare():
        remedy = (
            "Let this user's units run without a login. As root on the board: loginctl "
            f"enable-linger {facts.user}"
        )
        lack = f"{init.name} cannot start {unit.name} at boot"
        _done(host, facts, init, command, lack, remedy=remedy)
    if unit.user is not None:
        ensure_user(host, facts, unit.user)
        hand_over(host, facts, init, unit)
    change: Change = "same"
    for path, file in files.items():
        if found[path] == file.content:
            continue
        if _presence(found[path], unit) == "edited" and not overwrite:
            change = "kept"
            continue
        script = render("service/write.sh.j2", {"path": path, "mode": f"{file.mode:03o}"})
        _done(host, facts, init, script, f"{path} cannot be written", content=file.content)
        change = "kept" if change == "kept" else "written"
    if entry:
        (text,) = found.values()
        if _presence(text, unit) == "edited" and not overwrite:
            return "kept"
        change = "same" if text == entry else "written"
    _done(host, facts, init, _kept(init.enable(unit)), f"{init.name} does not accept {unit.name}")
    return change


def remove_unit(
    host: Host, facts: BootFacts, init: InitSystem, unit: UnitFacts
) -> tuple[PurePosixPath | str, ...]:
    """Stop a service, and take its unit and its user away; harmless where nothing is there.

    What belongs to another work folder, or has lost its mark, stays, and is returned.

    Raises:
        BoardError: the board refuses.
    """
    found = _found(host, facts, init, unit)
    others = tuple(at for at, text in found.items() if _presence(text, unit) == "another's")
    if others:
        return others
    if any(found.values()):
        remedy = (
            "If its supervisor was deleted, copy it again: armload service.update --board "
            f"{host.name} --name {unit.name}"
        )
        lack = f"{unit.name} cannot be stopped"
        _done(host, facts, init, init.stop(unit), lack, remedy=remedy)
    _done(host, facts, init, init.disable(unit), f"{unit.name} cannot be disabled")
    if paths := [file.path for file in init.files(unit)]:
        command = join(["rm", "-f", *paths])
        _done(host, facts, init, command, f"{paths[0]} cannot be removed")
    host.run(commanded(_kept(init.forget(unit)), init, facts), timeout_s=_WITHIN_S)
    if unit.user is not None:
        remove_user(host, facts, unit.user)
    return ()


def act(
    host: Host,
    facts: BootFacts,
    init: InitSystem,
    unit: UnitFacts,
    action: Literal["start", "stop", "restart", "enable", "disable"],
) -> None:
    """Have a service started, stopped and the like; starting does not wait for its answer.

    Raises:
        BoardError: the init system refuses.
    """
    command: str = getattr(init, action)(unit)
    if action in ("enable", "disable"):
        command = _kept(command)
    _done(host, facts, init, command, f"{unit.name} does not {action}")


def take_up_version(host: Host, facts: BootFacts, init: InitSystem, unit: UnitFacts) -> bool:
    """Have the supervisor start the version that is in force now; say whether it runs."""
    script = commanded(told(unit.run, "reload"), init, facts)
    return host.run(script, timeout_s=_WITHIN_S).status == 0


def _kept(command: str) -> str:
    """Return a command whose effect a power cut does not undo: most tools write to memory."""
    return f"{command}\nstatus=$?\nsync\nexit $status"


def _presence(text: str, unit: UnitFacts) -> Presence:
    return presence(text, unit.name, unit.folder)


_TABLE = "the cron table"


def _found(
    host: Host, facts: BootFacts, init: InitSystem, unit: UnitFacts
) -> dict[PurePosixPath | str, str]:
    """Return the text of each file of a unit, or its line of a table; empty where it is not."""
    if init.entry(unit):
        begin = mark(unit).rpartition(" ")[0]
        script = (
            f"crontab -l 2>/dev/null | grep -F -e {quote(f'# {begin} ')} | head -c {_MOST_BYTES}"
        )
        return {_TABLE: host.run(commanded(script, init, facts)).text}
    texts: dict[PurePosixPath | str, str] = {}
    for file in init.files(unit):
        done = host.run(f"[ ! -f {quote(file.path)} ] || head -c {_MOST_BYTES} <{quote(file.path)}")
        texts[file.path] = done.stdout.decode("utf-8", "surrogateescape")
    return texts


def _done(
    host: Host,
    facts: BootFacts,
    init: InitSystem,
    command: str,
    lack: str,
    *,
    content: str = "",
    remedy: str = "",
) -> None:
    done = host.run(
        commanded(command, init, facts),
        stdin=content.encode("utf-8", "surrogateescape"),
        timeout_s=_WITHIN_S,
    )
    if done.status != 0:
        raise BoardError(f"{host.name}: {lack}: {reason(done.stderr).rstrip('.')}.", remedy)
