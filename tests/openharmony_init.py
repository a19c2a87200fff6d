"""A stand-in for OpenHarmony's init: it reads the ``.cfg`` files and starts what they say.

Where releases from 3.0 to 6.1 differ, it is as strict as the strictest: 3.1 refuses a service with
a key that it does not know, 3.0 one without ``uid``, and the init of small systems one whose
program is the shell. Source: OpenHarmony's documentation, "Service management" of the subsystem
init, and its repository startup_init.
"""

from __future__ import annotations

import grp
import json
import pwd
import re
import subprocess
from pathlib import Path
from typing import Any

KEYS = frozenset(
    (
        *("name", "path", "uid", "gid", "once", "importance", "caps", "disabled", "writepid"),
        *("critical", "socket", "console", "dynamic", "file", "ondemand", "d-caps", "apl", "jobs"),
        *("start-mode", "end-mode", "cpucore", "secon"),
    )
)
"""Of a service, in 3.1; later releases know more."""

MOST_FILE_BYTES = 102_400
MOST_SERVICES, MOST_WORDS = 100, 19
MOST_NAME_BYTES = 31
"""3.1 copies the name into 32 bytes with its end, where the documentation says 32 without."""

MOST_WORD_BYTES = 64
"""As documented; the source takes 200."""

MOST_CONTEXT_BYTES = 256
SHELL = "/bin/sh"


class RefusedError(Exception):
    """What init would log and pass over."""


class OpenHarmonyInit:
    """One boot: the services of all files in a folder, those started that start by themselves.

    Args:
        is_small: the init of a small system; else a standard system's.
    """

    def __init__(self, folder: Path, *, is_small: bool = False) -> None:
        self._is_small = is_small
        self._known: dict[str, dict[str, Any]] = {}
        self.services: dict[str, subprocess.Popen[bytes]] = {}
        for path in sorted(folder.iterdir()):
            # The name's first ".cfg" has to be its end.
            if path.is_file() and path.name.partition(".cfg")[1:] == (".cfg", ""):
                self._read(path)
        for name, service in self._known.items():
            is_on_demand = service.get("disabled") == 1 or service.get("ondemand")
            if not is_on_demand and service.get("start-mode", "normal") != "condition":
                self._start(name)

    def reap(self) -> list[str]:
        """Start again what has ended and is to stay; return their names."""
        ended = [name for name, process in self.services.items() if process.poll() is not None]
        again = [name for name in ended if self._known[name].get("once") != 1]
        for name in again:
            self._start(name)
        return again

    def power_off(self) -> None:
        for process in self.services.values():
            process.kill()
            process.wait()

    def _start(self, name: str) -> None:
        self.services[name] = subprocess.Popen(
            self._known[name]["path"], stdin=subprocess.DEVNULL, start_new_session=True
        )

    def _read(self, path: Path) -> None:
        if not 0 < path.stat().st_size <= MOST_FILE_BYTES:
            raise RefusedError(f"{path}: too large, or empty")
        services = json.loads(path.read_text(encoding="utf-8")).get("services", [])
        if len(services) > MOST_SERVICES:
            raise RefusedError(f"{path}: too many services")
        for service in services:
            self._check(service)
            if service["name"] in self._known:
                raise RefusedError(f"{service['name']} is already there")
            self._known[service["name"]] = service

    def _check(self, service: dict[str, Any]) -> None:
        name, path = service.get("name"), service.get("path")
        importance = service.get("importance", 0)
        wrong = {
            "key": service.keys() <= KEYS,
            "name": isinstance(name, str) and 0 < len(name.encode()) <= MOST_NAME_BYTES,
            "path": isinstance(path, list)
            and 0 < len(path) <= MOST_WORDS
            and all(isinstance(each, str) for each in path)
            and all(len(each.encode()) <= MOST_WORD_BYTES for each in path)
            and path[0].startswith("/")
            # A standard system's SELinux knows a domain's entry by the shell, a small one has none.
            and not (self._is_small and path[0] == SHELL),
            "uid": _is_one_of_the_system(service.get("uid"), pwd.getpwnam),
            "gid": all(
                _is_one_of_the_system(each, grp.getgrnam) for each in _listed(service.get("gid"))
            ),
            "once": _is_number(service.get("once", 0)),
            # A standard system takes it for a niceness; a small one restarts the board with it.
            "importance": _is_number(importance)
            and (importance == 0 if self._is_small else -20 <= importance <= 19),
            "critical": "critical" not in service,
            "disabled": _is_number(service.get("disabled", 0)),
            "ondemand": isinstance(service.get("ondemand", False), bool),
            "caps": isinstance(service.get("caps", []), list),
            "start-mode": service.get("start-mode", "normal") in ("boot", "normal", "condition"),
            "secon": _is_context(service.get("secon", "u:r:sh:s0")),
        }
        refused = [key for key, is_right in wrong.items() if not is_right]
        if refused:
            raise RefusedError(f"{name}: {', '.join(refused)}")


def _listed(entry: object) -> list[object]:
    return entry if isinstance(entry, list) and entry else [entry]


def _is_number(entry: object) -> bool:
    return isinstance(entry, int) and not isinstance(entry, bool)


def _is_one_of_the_system(entry: object, named: Any) -> bool:
    if not isinstance(entry, str):
        return _is_number(entry)
    try:
        named(entry)
    except KeyError:
        return False
    return True


def _is_context(entry: object) -> bool:
    if not isinstance(entry, str) or len(entry.encode()) > MOST_CONTEXT_BYTES:
        return False
    return re.fullmatch(r"u:r:\w+:s0(:[0-9c,.]+)?", entry) is not None
