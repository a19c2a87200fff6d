"""A stand-in for OpenHarmony's init: it reads the ``.cfg`` files and starts what they say.

Format and limits: OpenHarmony's documentation, "Service management" of the subsystem init.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path


class OpenHarmonyInit:
    """One boot: the services of all files in a folder, each started once."""

    def __init__(self, folder: Path) -> None:
        self.services = {}
        for path in sorted(folder.glob("*.cfg")):
            for service in json.loads(path.read_text(encoding="utf-8")).get("services", []):
                self.services[_checked(service)] = subprocess.Popen(
                    service["path"], stdin=subprocess.DEVNULL, start_new_session=True
                )

    def power_off(self) -> None:
        for process in self.services.values():
            process.kill()
            process.wait()


def _checked(service: dict[str, object]) -> str:
    name, path = service["name"], service["path"]
    assert isinstance(name, str)
    assert 0 < len(name.encode()) <= 32
    assert isinstance(path, list)
    assert 0 < len(path) <= 20
    assert path[0].startswith("/")
    assert all(isinstance(word, str) and len(word.encode()) <= 64 for word in path)
    # On a small system another number restarts the board when the service ends.
    assert service["importance"] == 0
    assert service["once"] in (0, 1)
    assert service.get("start-mode", "normal") == "normal", "others are not started by themselves"
    assert isinstance(service["uid"], int | str)
    return name
