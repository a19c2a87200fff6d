"""The ordinary user that a service runs as where root installs it."""

from __future__ import annotations

import hashlib
import re
from pathlib import PurePosixPath

from armload.boards.boot import BootFacts
from armload.boards.framing import reason
from armload.boards.host import Host
from armload.core.errors import BoardError
from armload.core.shell import join, render
from armload.core.values import Value
from armload.services.init_systems import InitSystem, as_root
from armload.services.unit import UnitFacts, unit_name

_MOST = 31
"""Characters of a user's name (shadow's limit is 32; utmp has room for 31 and an end)."""

_OTHERS_READ = 0o005


class ServiceUser(Value):
    """Whom a service runs as.

    Attributes:
        name: a user of its own, or the login's where the init system would start it as root; none
            for what the init system does by itself.
        reason: why it has none of its own, as a sentence; empty where it has.
    """

    name: str | None = None
    reason: str = ""


class UserIds(Value):
    """A user as the kernel knows it."""

    uid: int
    gid: int


def user_for(facts: BootFacts, init: InitSystem, name: str) -> ServiceUser:
    """Return whom a service can run as; no user is made yet.

    Args:
        name: of the service.
    """
    login = facts.user or "the login's user"
    why = ""
    if not init.needs_root:
        return ServiceUser(reason=f"it runs as {login}, because {init.name} starts it")
    if facts.adds_users is None:
        why = "nothing on the board can add a user"
    elif facts.closed_folder is not None:
        why = f"other users cannot enter {facts.closed_folder}"
    elif facts.umask is not None and facts.umask & _OTHERS_READ:
        why = f"others cannot read what {login} writes (umask {facts.umask:03o})"
    if why:
        as_login = facts.user if facts.root == "sudo" and not init.sets_user else ""
        return ServiceUser(name=as_login or None, reason=f"it runs as {login}: {why}")
    own = unit_name(name)
    if len(own) > _MOST or own != own.lower():
        digest = hashlib.sha256(own.encode()).hexdigest()
        own = f"armload-{digest[:12]}"
    return ServiceUser(name=own)


def ensure_user(host: Host, facts: BootFacts, user: str) -> UserIds:
    """Make a service's user unless it is there.

    Raises:
        BoardError: the board refuses.
    """
    script = render("service/add_user.sh.j2", {"user": user, "tool": facts.adds_users or "none"})
    done = host.run(as_root(script, facts))
    match = re.fullmatch(r"(\d{1,10}) (\d{1,10})", done.text)
    if done.status != 0 or match is None:
        raise BoardError(f"{host.name}: user {user} cannot be added: {reason(done.stderr)}.")
    return UserIds(uid=int(match[1]), gid=int(match[2]))


def opened_to(facts: BootFacts, unit: UnitFacts, path: PurePosixPath) -> str:
    """Return a command that lets a service's own user read a file; empty where it has none."""
    if unit.user is None or not _is_own(unit.user):
        return ""
    return as_root(f"{join(['chgrp', unit.user, path])} && {join(['chmod', '640', path])}", facts)


def hand_over(host: Host, facts: BootFacts, init: InitSystem, unit: UnitFacts) -> None:
    """Let a service's own user read its keys, and make files in its folder beside those there.

    Whoever answers for a service that was broken into is that user: it must not be able to replace
    what root starts, nor lead what the login writes later to other files.

    Raises:
        BoardError: the board refuses.
    """
    if unit.user is None or not _is_own(unit.user):
        return
    values = {"user": unit.user, "folder": unit.folder, "falls_back": init.sets_user}
    script = render("service/hand_over.sh.j2", values)
    done = host.run(as_root(script, facts))
    if done.status != 0:
        raise BoardError(
            f"{host.name}: {unit.folder} cannot be given to {unit.user}: {reason(done.stderr)}."
        )


def remove_user(host: Host, facts: BootFacts, user: str) -> None:
    """Remove a service's user with its group; harmless where there is none, or it is a person's.

    Raises:
        BoardError: the board refuses.
    """
    if not _is_own(user):
        return
    done = host.run(as_root(render("service/remove_user.sh.j2", {"user": user}), facts))
    if done.status != 0:
        raise BoardError(f"{host.name}: user {user} cannot be removed: {reason(done.stderr)}.")


def _is_own(user: str) -> bool:
    return user.startswith(unit_name(""))
