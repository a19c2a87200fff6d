"""What a board says of its installed services."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from armload.boards.host import Host
from armload.core.errors import BoardError, TransferError, UsageError
from armload.core.shell import call, render
from armload.core.values import Count, Value, parse_json, whole_number
from armload.services.certificate import Certificate, certificate_told
from armload.services.unit import is_name
from armload.services.version import AnsweredSpeeds, ServiceLayout, ServiceVersion, services_folder

Condition = Literal["loading", "ready", "pausing", "stopped", "failed", "not running"]
"""How a service is; the last: its supervisor does not run, and has not said in this boot why."""


class LastEnd(BaseModel):
    """Why the server ended last."""

    model_config = ConfigDict(frozen=True)

    what: str
    at_s: float | None = None


class FellBack(BaseModel):
    """A version that was given up for the one before, and why."""

    model_config = ConfigDict(frozen=True)

    from_: str = ""
    why: str


class SupervisorState(BaseModel):
    """What the supervisor has noted last; times are in seconds since the boot.

    A later supervisor may note more.

    Attributes:
        beside: a version that runs beside this one has requests, or may get some.
        certificate: SHA-256 of the certificate in force; empty where none is, none without TLS.
        certificate_problem: why the file that lies there now is not in force; empty if it is.
    """

    model_config = ConfigDict(frozen=True)

    state: Literal["loading", "ready", "pausing", "stopped", "failed"]
    version: str = ""
    pid: Count = 0
    child: Count | None = None
    boot_id: str | None = None
    started_s: float | None = None
    ready_s: float | None = None
    restarts: Count = 0
    last_end: LastEnd | None = None
    fell_back: FellBack | None = None
    beside: bool = False
    log_dropped_bytes: Count = 0
    memory_bytes: Count | None = None
    certificate: str | None = None
    certificate_problem: str | None = None

    def is_news(self, before: SupervisorState | None) -> bool:
        """Say whether the server has ended, or a version was given up, since another note."""
        if before is None or before.pid != self.pid:
            return True
        return (before.last_end, before.fell_back) != (self.last_end, self.fell_back)

    def is_same_start(self, before: SupervisorState | None) -> bool:
        """Say whether the server has not been started since another note."""
        return before is not None and (before.pid, before.started_s) == (self.pid, self.started_s)


class ServiceOnBoard(Value):
    """An installed service, as its board tells.

    Attributes:
        name: of its folder.
        owner: the board's user whose it is; empty where that is this login, or this login is root.
        version: in force; none where installing it was interrupted.
        former: to which it can be rolled back.
        trial: the version that was confirmed last, to which the board falls back, while another
            one is not.
        kept: ids of all versions there.
        record: of the version in force; none where that cannot be read.
        speed: of that version, right after it was started first.
        state: as noted last; none before its first start.
        certificate: in its file; none where there is none, or this login cannot read it.
        is_alive: the supervisor runs now.
        up_s: of the board.
        boot_id: of the board's boot; empty where it was not told.
    """

    name: str
    owner: str = ""
    version: str | None = None
    former: str | None = None
    trial: str | None = None
    kept: tuple[str, ...] = ()
    record: ServiceVersion | None = None
    speed: AnsweredSpeeds | None = None
    state: SupervisorState | None = None
    certificate: Certificate | None = None
    is_alive: bool = False
    up_s: Count
    boot_id: str = ""

    @property
    def condition(self) -> Condition:
        if self.state is None:
            return "not running"
        # A supervisor that was stopped, or gave up, has exited; each boot starts it again.
        has_left = self.state.state in ("stopped", "failed") and self.state.boot_id == self.boot_id
        return self.state.state if self.is_alive or (self.boot_id and has_left) else "not running"

    @property
    def uptime_s(self) -> float | None:
        """How long it has answered; none where it does not."""
        if self.state is None or self.condition != "ready" or self.state.ready_s is None:
            return None
        return max(0.0, self.up_s - self.state.ready_s)

    @property
    def is_complete(self) -> bool:
        """Whether installing it came to its end: its first version has answered."""
        if self.version is None:
            return False
        return self.speed is not None or self.former is not None or len(self.kept) > 1

    @property
    def rollback(self) -> str | None:
        """The version that a rollback puts in force; none where there is none."""
        is_other = self.former in self.kept and self.former != self.version
        return self.former if is_other else None

    @property
    def interrupted(self) -> Literal["update", "rollback", "note"] | None:
        """What was interrupted; a note: only to remove what says so."""
        if self.trial is None:
            return None
        if self.trial in (self.version, self.former):
            return "note"
        return "rollback" if self.former == self.version else "update"


def installed_services(host: Host, workdir: PurePosixPath) -> tuple[ServiceOnBoard, ...]:
    """Return a board's installed services, by name."""
    return _services_in(host, services_folder(workdir))


def service_at(host: Host, layout: ServiceLayout) -> ServiceOnBoard | None:
    """Return the service in a folder; none where there is none."""
    found = _services_in(host, layout.folder.parent)
    return next((each for each in found if each.name == layout.folder.name), None)


def _services_in(host: Host, folder: PurePosixPath) -> tuple[ServiceOnBoard, ...]:
    script = render("service/tell.sh.j2", {"services": folder})
    return parse_services(host.run(script).text.splitlines(), host.name)


def installed_service(host: Host, workdir: PurePosixPath, name: str) -> ServiceOnBoard:
    """Return one of a board's services.

    Args:
        name: empty for the only one.

    Raises:
        UsageError: there is no such service.
    """
    there = installed_services(host, workdir)
    found = [each for each in there if not name or each.name == name]
    names = ", ".join(each.name for each in there)
    if len(found) > 1:
        raise UsageError(f"{host.name} has several services: {names}.", "Choose one with --name.")
    if not found:
        called = f" named {name}" if name else ""
        raise UsageError(
            f"{host.name} has no installed service{called}.",
            f"It has: {names}."
            if names
            else f"Install one: armload service.install {host.named} --model MODEL "
            f"--name {name or 'NAME'}",
        )
    return found[0]


def check_own(host: Host, service: ServiceOnBoard) -> None:
    """Refuse to change a service of another user of the board.

    Raises:
        BoardError: it is one.
    """
    if service.owner:
        raise BoardError(
            f"{host.name}: the service {service.name} belongs to the user {service.owner}, so this "
            "login cannot change it.",
            f"Log in to {host.name} as {service.owner} or root.",
        )


def running_record(host: Host, service: ServiceOnBoard) -> ServiceVersion:
    """Return the record of the version in force.

    Raises:
        TransferError: it cannot be read; says what to do.
    """
    if service.record is None:
        raise TransferError(
            f"{host.name}: the service {service.name} has no readable record of its current "
            "version: its installation was interrupted, or its files were changed by hand.",
            f"Remove it: armload service.remove {host.named} --name {service.name}",
        )
    return service.record


def missing_of(host: Host, workdir: PurePosixPath, record: ServiceVersion) -> tuple[str, ...]:
    """Return the folders that a version needs and that somebody has deleted."""
    script = call("tell_there", *(workdir / each for each in record.uses))
    there = host.run(script).text.splitlines()
    return tuple(path for each in record.uses if (path := str(workdir / each)) not in there)


def held_bytes(host: Host, service: ServiceOnBoard) -> int | None:
    """Return what the server's processes hold now: anonymous memory, and what is swapped.

    Returns:
        What the supervisor noted last, up to a minute ago, where the board does not tell; none
        where the server does not run.
    """
    state = service.state
    if state is None or not service.is_alive:
        return None
    if not state.child:
        return state.memory_bytes
    told = host.run(render("service/memory.sh.j2", {"group": state.child})).text
    found = [line.partition(" ") for line in told.splitlines()]
    if not any(name == "RssAnon:" for name, _, _ in found):
        return state.memory_bytes
    return sum(whole_number(kib) or 0 for _, _, kib in found) * 1024


def parse_services(lines: Iterable[str], board_name: str) -> tuple[ServiceOnBoard, ...]:
    """Read what a board tells of its services; what it cannot have written is left out."""
    up_s, boot_id = 0, ""
    found: list[dict[str, object]] = []
    for line in lines:
        word, _, rest = line.partition(" ")
        if word == "#up":
            boot_id, _, seconds = rest.rpartition(" ")
            number = whole_number(seconds)
            if number is None:
                raise TransferError(f"{board_name}: cannot parse its uptime: {line[:200]!r}.")
            up_s = number
        elif word == "#service":
            found.append({"name": rest, "kept": []})
        elif not found:
            continue
        elif word in ("#version", "#former", "#trial", "#owner"):
            # The service's user may have written it.
            if _ID.fullmatch(rest):
                found[-1][word[1:]] = rest
        elif word == "#kept":
            kept = found[-1]["kept"]
            assert isinstance(kept, list)  # noqa: S101
            kept.append(PurePosixPath(rest).parent.name)
        elif word == "#certificate":
            found[-1]["certificate"] = certificate_told(rest)
        elif word == "#alive":
            found[-1]["is_alive"] = True
        elif word in _FIELDS:
            found[-1][_FIELDS[word]] = _document(word, rest)
    return tuple(
        ServiceOnBoard.model_validate({**each, "up_s": up_s, "boot_id": boot_id})
        for each in found
        if is_name(str(each["name"]))
    )


_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")
_FIELDS = {"#state": "state", "#service.json": "record", "#speed.json": "speed"}


def _document(kind: str, line: str) -> object:
    try:
        content = parse_json(line)
        if kind == "#service.json":
            return ServiceVersion.model_validate(content)
        if kind == "#speed.json":
            return AnsweredSpeeds.model_validate(content)
        fell_back = content.get("fell_back")
        if isinstance(fell_back, dict):
            content["fell_back"] = {**fell_back, "from_": str(fell_back.pop("from", ""))}
        return SupervisorState.model_validate(content)
    except (ValidationError, ValueError, TypeError, AttributeError):
        return None
