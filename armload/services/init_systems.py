"""The init systems: what each reads, and how a service of it is started and stopped.

Formats: systemd.service(5), systemd.exec(5), systemd.syntax(7), tmpfiles.d(5); "OpenRC Service
Script Writing Guide"; LSB 5.0, "System Initialization"; Buildroot's manual on ``/etc/init.d``;
"Service management" of OpenHarmony's subsystem init; crontab(5).
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from pathlib import PurePosixPath
from typing import Literal, get_args

from armload.boards.boot import BootFacts, InitName
from armload.core.errors import BoardError, UsageError
from armload.core.shell import fill, join, quote, render, shell_words
from armload.services.unit import UnitFacts, UnitFile, mark, sealed, unit_name

_SBIN = "PATH=$PATH:/usr/sbin:/sbin\n"


class InitSystem(ABC):
    """What starts services when a board boots. Its methods return shell commands.

    Args:
        facts: of the board.

    Attributes:
        name: of the kind.
        needs_root: its commands run as root, and its files are written by root.
        sets_user: it starts the service as the unit's user; else that is left to the service.
    """

    name: InitName
    needs_root = True
    sets_user = False

    def __init__(self, facts: BootFacts) -> None:
        self._facts = facts

    def files(self, _unit: UnitFacts) -> tuple[UnitFile, ...]:
        """Return what it reads.

        Raises:
            BoardError: it cannot be told of this service.
        """
        return ()

    def entry(self, _unit: UnitFacts) -> str:
        """Return the line of a table that all services share; empty where each has files."""
        return ""

    def prepare(self) -> str:
        """Before its files are written: what they need."""
        return ""

    @abstractmethod
    def enable(self, unit: UnitFacts) -> str:
        """Have it started at boot."""

    @abstractmethod
    def disable(self, unit: UnitFacts) -> str:
        """Not have it started at boot; harmless where it is not."""

    @abstractmethod
    def start(self, unit: UnitFacts) -> str:
        """Start it, without waiting until it answers."""

    @abstractmethod
    def stop(self, unit: UnitFacts) -> str:
        """Stop it, and wait until it has ended."""

    def restart(self, unit: UnitFacts) -> str:
        """Stop and start it."""
        return f"{self.stop(unit)}\n{self.start(unit)}"

    @abstractmethod
    def is_active(self, unit: UnitFacts) -> str:
        """Status 0 while it runs, or is being started."""

    def memory_limit(self, _unit: UnitFacts) -> str:
        """Print how many bytes of memory it may take as long as it runs; nothing for no limit."""
        return ""

    def forget(self, _unit: UnitFacts) -> str:
        """After its files were removed: leave nothing of it behind."""
        return "true"


def systemd_word(value: object) -> str:
    """Quote a word of a unit file's value, as systemd reads it back (systemd.syntax(7))."""
    return '"' + str(value).translate({92: r"\\", 34: r"\"", 37: "%%"}) + '"'


def _systemd_value(value: object) -> str:
    return value if isinstance(value, _Plain) else systemd_word(value)


class _Plain(str):
    """What a template prints as it is."""

    __slots__ = ()


class Systemd(InitSystem):
    """A unit of the system."""

    name: InitName = "systemd"
    sets_user = True
    _systemctl = "systemctl"
    _wanted_by = "multi-user.target"

    @property
    def _units(self) -> PurePosixPath:
        return PurePosixPath("/etc/systemd/system")

    @property
    def _tmpfiles(self) -> PurePosixPath:
        return PurePosixPath("/etc/tmpfiles.d")

    def files(self, unit: UnitFacts) -> tuple[UnitFile, ...]:
        text = fill("service/systemd.service.j2", self._values(unit), _systemd_value)
        path = self._units / f"{unit_name(unit.name)}.service"
        files = [UnitFile(path=path, content=sealed(text), mode=0o644)]
        if _is_temporary(unit.folder):
            # What nobody has read for 30 days is removed from there.
            kept = systemd_word(_no_glob(str(unit.folder.parent.parent)))
            files.append(
                UnitFile(
                    path=self._tmpfiles / f"{unit_name(unit.name)}.conf",
                    content=sealed(f"# {mark(unit)}\nx {kept}\n"),
                    mode=0o644,
                )
            )
        return tuple(files)

    def _values(self, unit: UnitFacts) -> dict[str, object]:
        is_own = self.needs_root
        user = unit.user or (self._facts.user if self._facts.root == "sudo" else "")
        return {
            "mark": _Plain(mark(unit)),
            "description": _Plain(unit.description.rstrip("\\").replace("%", "%%")),
            # Of an argument, systemd replaces variables, too.
            "run": _Plain(systemd_word(unit.run).replace("$", "$$")),
            "folder": unit.folder,
            "writable": unit.writable,
            "user": _Plain(user) if is_own and user else None,
            "memory": _Plain(unit.memory_max_bytes) if unit.memory_max_bytes else None,
            "is_public": unit.is_public,
            "is_system": is_own,
            "is_in_home": unit.folder.parts[1] in ("home", "root", "run"),
            "is_temporary": _is_temporary(unit.folder),
            "wanted_by": _Plain(self._wanted_by),
        }

    def _run(self, unit: UnitFacts, *words: str) -> str:
        return f"{self._systemctl} {join([*words, f'{unit_name(unit.name)}.service'])}"

    def enable(self, unit: UnitFacts) -> str:
        return f"{self._systemctl} daemon-reload && {self._run(unit, '--quiet', 'enable')}"

    def disable(self, unit: UnitFacts) -> str:
        wanted = self._units / f"{self._wanted_by}.wants" / f"{unit_name(unit.name)}.service"
        return f"{self._run(unit, '--quiet', 'disable')} 2>/dev/null || rm -f {quote(wanted)}"

    def start(self, unit: UnitFacts) -> str:
        return self._run(unit, "--no-block", "start")

    def stop(self, unit: UnitFacts) -> str:
        return self._run(unit, "stop")

    def restart(self, unit: UnitFacts) -> str:
        return self._run(unit, "--no-block", "restart")

    def is_active(self, unit: UnitFacts) -> str:
        state = self._run(unit, "is-active")
        return f"case $({state}) in active | activating | reloading) ;; *) false ;; esac"

    def memory_limit(self, unit: UnitFacts) -> str:
        group = self._run(unit, "--property=ControlGroup", "--value", "show")
        # The kernel's word: its memory groups may be off, whatever the unit says.
        files = (
            '"/sys/fs/cgroup$group/memory.max" "/sys/fs/cgroup/memory$group/memory.limit_in_bytes"'
        )
        return f'group=$({group})\n[ -z "$group" ] || cat {files} 2>/dev/null'

    def forget(self, unit: UnitFacts) -> str:
        failed = f"{self._run(unit, 'reset-failed')} 2>/dev/null || true"
        return f"{self._systemctl} daemon-reload; {failed}"


class SystemdUser(Systemd):
    """A unit of the login's user, which systemd starts at boot where the user lingers."""

    name: InitName = "systemd-user"
    needs_root = False
    sets_user = False
    # A login without a session knows no more than its number.
    _systemctl = "XDG_RUNTIME_DIR=/run/user/$(id -u) systemctl --user"
    _wanted_by = "default.target"

    @property
    def _units(self) -> PurePosixPath:
        return self._home / ".config/systemd/user"

    @property
    def _tmpfiles(self) -> PurePosixPath:
        return self._home / ".config/user-tmpfiles.d"

    @property
    def _home(self) -> PurePosixPath:
        if self._facts.home is None:
            raise BoardError("The board's user has no home folder.", "Give the user one.")
        return self._facts.home

    def prepare(self) -> str:
        return render("service/linger.sh.j2", {})

    def stop(self, unit: UnitFacts) -> str:
        # Without the user's systemd, nothing of it runs.
        return f"[ ! -S /run/user/$(id -u)/systemd/private ] || {super().stop(unit)}"


class _Script(InitSystem):
    """An init that runs scripts."""

    _template: str

    def _path(self, unit: UnitFacts) -> PurePosixPath:
        return PurePosixPath("/etc/init.d", unit_name(unit.name))

    def files(self, unit: UnitFacts) -> tuple[UnitFile, ...]:
        values = {
            "mark": _Plain(mark(unit)),
            "name": unit_name(unit.name),
            "plain_description": _Plain(unit.description),
            "description": unit.description,
            "run": unit.run,
            "is_public": unit.is_public,
        }
        text = fill(f"service/{self._template}", values, _shell_value)
        return (UnitFile(path=self._path(unit), content=sealed(text), mode=0o755),)

    def _run(self, unit: UnitFacts, word: str) -> str:
        return f"{quote(self._path(unit))} {word}"

    def start(self, unit: UnitFacts) -> str:
        return self._run(unit, "start")

    def stop(self, unit: UnitFacts) -> str:
        return self._run(unit, "stop")

    def restart(self, unit: UnitFacts) -> str:
        return self._run(unit, "restart")

    def is_active(self, unit: UnitFacts) -> str:
        return f"{self._run(unit, 'status')} >/dev/null 2>&1"


class OpenRC(_Script):
    """A service of the default runlevel."""

    name: InitName = "openrc"
    _template = "openrc.sh.j2"

    def enable(self, unit: UnitFacts) -> str:
        return f"rc-update -q add {unit_name(unit.name)} default"

    def disable(self, unit: UnitFacts) -> str:
        return f"rc-update -q delete {unit_name(unit.name)} default 2>/dev/null || true"

    def _run(self, unit: UnitFacts, word: str) -> str:
        return f"rc-service {unit_name(unit.name)} {word}"


class SysV(_Script):
    """A script with links in the folders of the runlevels."""

    name: InitName = "sysv"
    _template = "init_script.sh.j2"

    def enable(self, unit: UnitFacts) -> str:
        return self._runlevels(unit, "enable")

    def disable(self, unit: UnitFacts) -> str:
        return self._runlevels(unit, "disable")

    def _runlevels(self, unit: UnitFacts, word: str) -> str:
        values = {
            "word": word,
            "name": unit_name(unit.name),
            "tool": self._facts.runlevel_tool or "links",
            "runlevels": self._facts.runlevels or "/etc",
        }
        return render("service/runlevels.sh.j2", values)


class BusyBox(_Script):
    """A script among those that ``rcS`` runs, in the order of their names."""

    name: InitName = "busybox"
    _template = "init_script.sh.j2"

    def _path(self, unit: UnitFacts) -> PurePosixPath:
        return PurePosixPath("/etc/init.d", f"S99{unit_name(unit.name)}")

    def enable(self, unit: UnitFacts) -> str:
        return f"chmod 755 {quote(self._path(unit))}"

    def disable(self, unit: UnitFacts) -> str:
        # rcS runs what can be run.
        path = quote(self._path(unit))
        return f"[ ! -e {path} ] || chmod 644 {path}"

    def _run(self, unit: UnitFacts, word: str) -> str:
        return f"sh {quote(self._path(unit))} {word}"


class _ByHand(InitSystem):
    """An init that only starts: what it started is found and stopped from outside."""

    def start(self, unit: UnitFacts) -> str:
        return told(unit.run, "start")

    def stop(self, unit: UnitFacts) -> str:
        return told(unit.run, "stop")

    def is_active(self, unit: UnitFacts) -> str:
        return told(unit.run, "status")


_MOST_OPENHARMONY_NAME, _MOST_OPENHARMONY_WORD = 31, 64
"""In bytes. Release 3.1 keeps 32 for a name with its end; a path is documented to have 64."""


class OpenHarmony(_ByHand):
    """A service in a file of OpenHarmony's init, which reads it only when the board boots."""

    name: InitName = "openharmony"

    def files(self, unit: UnitFacts) -> tuple[UnitFile, ...]:
        name = unit_name(unit.name)
        for what, text, most in (
            ("name", name, _MOST_OPENHARMONY_NAME),
            ("path", str(unit.run), _MOST_OPENHARMONY_WORD),
        ):
            if len(text.encode()) > most:
                raise BoardError(
                    f"OpenHarmony's init accepts a {what} of at most {most} bytes: {text}",
                    "Choose a shorter --name, or a shorter work folder in the board's file.",
                )
        service: dict[str, object] = {
            "name": name,
            "path": self._command(unit),
            "uid": "root",
            "gid": ["root"],
            "once": 0,
            # Another number restarts a small system's board when the service ends.
            "importance": 0,
            # Release 3.1 refuses a service with any key that it does not know.
            "start-mode": "normal",
        }
        if self._facts.security_context:
            service["secon"] = self._facts.security_context
        document = {"armload": mark(unit), "services": [service]}
        text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
        return (UnitFile(path=self._folder / f"{name}.cfg", content=sealed(text), mode=0o644),)

    def _command(self, unit: UnitFacts) -> list[str]:
        # SELinux's policy lets a domain be entered by the shell. Small systems, which have no
        # SELinux, refuse a service that is started by the shell.
        return [*(["/bin/sh"] if self._facts.security_context else []), str(unit.run)]

    @property
    def _folder(self) -> PurePosixPath:
        return self._facts.openharmony_folder or PurePosixPath("/vendor/etc/init")

    def _paths(self, unit: UnitFacts) -> tuple[str, str]:
        path = self._folder / f"{unit_name(unit.name)}.cfg"
        return quote(path), quote(f"{path}.disabled")

    def enable(self, unit: UnitFacts) -> str:
        path, aside = self._paths(unit)
        return f"if [ -e {path} ]; then rm -f {aside}; else mv -f {aside} {path}; fi"

    def disable(self, unit: UnitFacts) -> str:
        path, aside = self._paths(unit)
        return f"[ ! -e {path} ] || mv -f {path} {aside}"

    def forget(self, unit: UnitFacts) -> str:
        return f"rm -f {self._paths(unit)[1]}"

    def stop(self, unit: UnitFacts) -> str:
        # Else init starts again what it sees ending. It knows nothing that is new since the boot.
        name = quote(unit_name(unit.name))
        told = f"begetctl stop_service {name} || service_control stop {name}"
        return f"{{ {told}; }} >/dev/null 2>&1\n{super().stop(unit)}"


class Cron(_ByHand):
    """A line ``@reboot`` in the login's table."""

    name: InitName = "cron"
    needs_root = False

    def entry(self, unit: UnitFacts) -> str:
        return sealed(f"@reboot sh {_cron_word(str(unit.run))} >/dev/null 2>&1 # {mark(unit)}")

    def enable(self, unit: UnitFacts) -> str:
        return self._table(unit, self.entry(unit))

    def disable(self, unit: UnitFacts) -> str:
        return self._table(unit, "")

    def _table(self, unit: UnitFacts, line: str) -> str:
        begin = mark(unit).rpartition(" ")[0]
        return render("service/crontab.sh.j2", {"mark": f"# {begin} ", "line": line})


_SPECIAL_TO_CRON = "%#\\"


def _cron_word(word: str) -> str:
    """Quote a word for the shell of a cron table.

    There, ``%`` ends a line and ``#`` may begin a comment, within quotes, too, and how they are
    escaped differs. So the shell puts them in.
    """
    special = [each for each in _SPECIAL_TO_CRON if each in word]
    if not special:
        return quote(word)
    free = [each for each in "@+,:=^~!&" if each not in word]
    if len(free) < len(special):
        raise BoardError(
            f"cron cannot run {word}: the path has too many special characters.",
            "Choose another work folder in the board's file.",
        )
    codes = "".join(f"\\{ord(each):03o}" for each in special)
    for each, instead in zip(special, free, strict=False):
        word = word.replace(each, instead)
    stand_ins = "".join(free[: len(special)])
    return f"\"$(echo {quote(word)} | tr {quote(stand_ins)} '{codes}')\""


def _shell_value(value: object) -> str:
    return value if isinstance(value, _Plain) else shell_words(value)


def _is_temporary(folder: PurePosixPath) -> bool:
    """Say whether systemd cleans what lies there, and gives its own there to each service."""
    return any(folder.is_relative_to(each) for each in ("/tmp", "/var/tmp"))  # noqa: S108 - on the board


def _no_glob(path: str) -> str:
    return "".join(f"\\{each}" if each in "*?[]\\" else each for each in path)


_KINDS: dict[InitName, type[InitSystem]] = {
    "systemd": Systemd,
    "systemd-user": SystemdUser,
    "openrc": OpenRC,
    "busybox": BusyBox,
    "sysv": SysV,
    "openharmony": OpenHarmony,
    "cron": Cron,
}


def choose(facts: BootFacts, wanted: str | None, board_name: str) -> InitSystem:
    """Return what starts a service on a board.

    Args:
        wanted: its name; none for the best that can be used.

    Raises:
        UsageError: there is no init system of that name.
        BoardError: the board does not have it, or it cannot be used by this login.
    """
    known = get_args(InitName)
    if wanted is not None and wanted not in known:
        raise UsageError(
            f"There is no init system {wanted!r}.", f"Choose one of {', '.join(known)}."
        )
    for name in facts.usable:
        if wanted in (None, name):
            return _KINDS[name](facts)
    lacking = [each for each in facts.unusable if wanted in (None, each.name)]
    if not lacking:
        lack = (
            f"--init {wanted}: the board does not have it"
            if wanted
            else f"nothing can start a service when the board boots. Looked for {', '.join(known)}"
        )
        there = f"; its first process is {facts.init}" if facts.init else ""
        raise BoardError(
            f"{board_name}: {lack}{there}.",
            f"It can use: {', '.join(facts.usable)}."
            if facts.usable
            else "Serve from this machine instead: armload serve --detach, after each start of the "
            "board; or install cron there.",
        )
    raise BoardError(
        f"{board_name}: no service can be installed: "
        + "; ".join(f"{each.name}: {each.reason}" for each in lacking)
        + ".",
        " Or: ".join(each.remedy for each in lacking),
    )


def told(run: PurePosixPath, word: Literal["start", "stop", "status", "reload"]) -> str:
    """Return a command that tells something to the supervisor of a service's folder.

    Args:
        run: the script in it.
    """
    return join(["sh", run, word])


def as_root(command: str, facts: BootFacts) -> str:
    """Return a command that runs as root, with the programs that only root has in its path."""
    whole = f"{_SBIN}{command}"
    return f"sudo -n sh -c {quote(whole)}" if facts.root == "sudo" else whole


def commanded(command: str, init: InitSystem, facts: BootFacts) -> str:
    """Return a command of an init system as it has to be run."""
    return as_root(command, facts) if init.needs_root else f"{_SBIN}{command}"
