"""Devices for ``hdc`` and ``adb``: folders whose only tools are mksh and toybox."""

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

from armload.boards.virtual.process import free_port
from tests.adb_stand_in import AdbDevice

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


def android_tools(folder: Path, *, without: frozenset[str] = frozenset()) -> Path:
    """Make a folder whose programs are mksh and toybox, as on Android and OpenHarmony."""
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
    return tools


@contextmanager
def hdc_device(folder: Path, *, without: frozenset[str] = frozenset()) -> Iterator[Hdc]:
    """Give the stand-in with one device attached, until the block ends."""
    tools = android_tools(folder, without=without)
    hdc = Hdc(folder, tools)
    hdc.has("7001005458323933328a01bce01c3800")
    try:
        yield hdc
    finally:
        for started in (folder / "server.pid", *folder.glob("rule-*")):
            with suppress(OSError, ValueError):
                os.kill(int(started.read_text()), signal.SIGKILL)


class Adb:
    """The real tool with a server of its own, and a device that it reaches.

    Attributes:
        device: the stand-in.
        serial: its name.
    """

    def __init__(self, device: AdbDevice) -> None:
        self.device = device
        self.serial = f"127.0.0.1:{device.port}"

    def call(self, *words: str) -> str:
        done = subprocess.run(["adb", *words], check=True, capture_output=True, text=True)
        return done.stdout

    def attach(self, device: AdbDevice | None = None) -> None:
        """Attach a device, the usual one when it is left out."""
        port = (device or self.device).port
        assert "connected to" in self.call("connect", f"127.0.0.1:{port}")

    def detach(self) -> None:
        self.call("disconnect")


@contextmanager
def adb_device(
    folder: Path, *, second_protocol: bool = True, without: frozenset[str] = frozenset()
) -> Iterator[Adb]:
    """Give adb with one device attached, until the block ends."""
    if shutil.which("adb") is None:
        pytest.skip("adb is not installed (Debian: adb)")
    device = AdbDevice(android_tools(folder, without=without), second_protocol=second_protocol)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANDROID_ADB_SERVER_PORT", str(free_port()))
        patch.delenv("ANDROID_SERIAL", raising=False)
        adb = Adb(device)
        adb.attach()
        try:
            yield adb
        finally:
            adb.call("kill-server")
            device.close()
