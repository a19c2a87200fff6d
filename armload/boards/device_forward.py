"""A port on a board that a device tool forwards, and the rules that outlive a process of ours.

Each has a file in this user's state folder for as long as it is wanted, so that a later command
removes what a killed one has left.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from pathlib import Path

import platformdirs
from pydantic import ValidationError

from armload.boards.device_tool import DeviceTool
from armload.boards.forward import LOOPBACK, Endpoint
from armload.boards.virtual.process import Started, free_port
from armload.core.errors import ArmloadError, ConnectError
from armload.core.files import write_whole
from armload.core.values import Value, as_json


class Rule(Value):
    """A local port of a tool's server that leads to one of a device.

    Attributes:
        tool: its name.
        key: of the device; none for the only one.
        local_port, port: of this machine, and of the device.
        process: that wants it.
    """

    tool: str
    key: str | None
    local_port: int
    port: int
    process: Started


def note(tool: DeviceTool, local_port: int, port: int) -> None:
    """Keep that this process wants a rule; where that cannot be written, it outlives a kill."""
    process = Started.of(os.getpid())
    if process is not None:
        rule = Rule(tool=tool.name, key=tool.key, local_port=local_port, port=port, process=process)
        with contextlib.suppress(OSError):
            write_whole(_file(local_port), as_json(rule).encode())


def forget(local_port: int) -> None:
    """Drop the note of a rule that is not there any more."""
    with contextlib.suppress(OSError):
        _file(local_port).unlink(missing_ok=True)


def left_behind(tool: DeviceTool) -> list[Rule]:
    """Return the rules of a device whose processes have ended without removing them."""
    own = (tool.name, tool.key)
    return [each for each in _noted() if (each.tool, each.key) == own and each.process.is_gone()]


def _noted() -> list[Rule]:
    found = []
    for path in sorted(_folder().glob("*.json")):
        with contextlib.suppress(OSError, ValidationError):
            found.append(Rule.model_validate_json(path.read_bytes()))
    return found


def _folder() -> Path:
    return Path(platformdirs.user_state_dir("armload")) / "device-forwards"


def _file(local_port: int) -> Path:
    return _folder() / f"{local_port}.json"


_PORT_ATTEMPTS = 3


class DeviceForward:
    """The tool's server listens on a second local port, and drops it when the device disconnects.

    It goes on listening when this process is killed; the next forward of the device ends that.
    """

    def __init__(self, tool: DeviceTool, board_name: str, port: int) -> None:
        self._tool = tool
        self._name = board_name
        self._port = port
        for rule in left_behind(tool):
            tool.end_forward(rule.local_port, rule.port)
            forget(rule.local_port)
        for _ in range(_PORT_ATTEMPTS):
            self._local_port = free_port()
            note(tool, self._local_port, port)
            if tool.forward(self._local_port, port):
                break
            forget(self._local_port)
        else:
            raise ConnectError(
                f"{board_name}: {tool.name} cannot listen on any local port.",
                f"Restarting {tool.name} sometimes helps: {tool.restart}",
            )
        if _is_taken_beside(self._local_port):
            self.close()
            raise ConnectError(
                f"{board_name}: {tool.name} would open the board's port {port} to this machine's "
                "networks.",
                tool.listening_remedy,
            )

    def dial(self) -> Endpoint | None:
        try:
            return socket.create_connection((LOOPBACK, self._local_port))
        except OSError as error:
            raise ConnectError(
                f"{self._name}: {self._tool.name} no longer forwards the port."
            ) from error

    def close(self) -> None:
        with contextlib.suppress(ArmloadError):
            self._tool.end_forward(self._local_port, self._port)
            forget(self._local_port)


def _is_taken_beside(port: int) -> bool:
    """Say whether what listens on a port of 127.0.0.1 listens on other addresses, too."""
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.2", port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False
