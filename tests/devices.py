"""Devices for the stand-in of ``hdc``: folders whose only tools are mksh and toybox."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

STAND_IN = Path(__file__).with_name("hdc_stand_in.py")


class Hdc:
    """The stand-in, and what it is to say of its devices.

    Attributes:
        program: its path.
    """

    def __init__(self, folder: Path, tools: Path) -> None:
        self.program = folder / "hdc"
        self._state = folder / "state.json"
        self._device = {"shell": "sh", "program": str(tools / "sh"), "path": str(tools)}
        code = STAND_IN.read_text()
        self.program.write_text(f"#!{sys.executable}\n{code}")
        self.program.chmod(0o755)

    def has(self, *keys: str, **changed: Any) -> None:
        """Attach these devices and no others."""
        devices = {key: {**self._device, **changed} for key in keys}
        self._state.write_text(json.dumps({"devices": devices}))

    def has_no_server(self) -> None:
        self._state.write_text(json.dumps({"devices": {}, "no_server": True}))


@contextmanager
def hdc_device(folder: Path, *, without: frozenset[str] = frozenset()) -> Iterator[Hdc]:
    """Give the stand-in with one device attached, until the block ends."""
    found = {name: shutil.which(name) for name in ("mksh", "toybox")}
    missing = [name for name, path in found.items() if path is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    folder.mkdir(parents=True, exist_ok=True)
    tools = folder / "tools"
    tools.mkdir()
    shutil.copy(str(found["mksh"]), tools / "mksh")
    shutil.copy(str(found["toybox"]), tools / "toybox")
    (tools / "sh").symlink_to("mksh")
    listing = subprocess.run(
        [str(found["toybox"])], check=True, capture_output=True, text=True
    ).stdout
    for name in sorted({*listing.split()} - {"sh", "mksh", "toybox"} - without):
        (tools / name).symlink_to("toybox")
    hdc = Hdc(folder, tools)
    hdc.has("7001005458323933328a01bce01c3800")
    try:
        yield hdc
    finally:
        for started in (folder / "server.pid", *folder.glob("rule-*")):
            with suppress(OSError, ValueError):
                os.kill(int(started.read_text()), signal.SIGKILL)
