"""A board reached by ``adb``, Android's tool, and what that one's answers mean.

Devices before Android 7 have the first shell protocol: it tells no exit status and merges the
streams. Words as in the tool's source (packages/modules/adb: client, transport.cpp, commandline).
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

from armload.boards.board import AdbReach
from armload.boards.device import DeviceHost
from armload.boards.device_tool import DeviceTool, time_to_grow, time_to_send
from armload.core.errors import ArmloadError, BoardError, ConnectError

_PUSHED = re.compile(rb"\bpushed\b|bytes in ")
_TAKEN = (b"Address already in use", b"cannot rebind")


class AdbTool(DeviceTool):
    name = "adb"
    choosing = "-s"
    sending = "adb push"
    forwarding = "adb forward"
    why_framed = "older devices report no exit status and merge the streams"
    no_resuming = "adb cannot resume an interrupted transfer"
    restart = "adb kill-server"
    comes_with = "Android's platform tools (Debian: adb)"
    listening_remedy = "Restart adb's server without the option -a: adb kill-server"
    complains = ("error: ", "adb: ", "* failed")
    own_server = ("* daemon", "* start", "adb server version", "adb server is out of date")

    def send(self, local: Path, remote: PurePosixPath) -> None:
        words = ("push", str(local), str(remote))
        answer = self._transfer(words, time_to_send(local.stat().st_size))
        if any(map(self.is_failure, self.lines(answer))) or not _PUSHED.search(answer):
            raise self._not_copied(answer, remote)

    def receive(self, remote: PurePosixPath, local: Path, size: int) -> None:
        answer = self._transfer(("pull", str(remote), str(local)), time_to_grow(local, size))
        if any(map(self.is_failure, self.lines(answer))):
            raise self._not_copied(answer, remote)
        self._check_whole(local, remote, size)

    def forward(self, local_port: int, port: int) -> bool:
        answer = self._answer("forward", "--no-rebind", f"tcp:{local_port}", f"tcp:{port}")
        if not any(map(self.is_failure, self.lines(answer))):
            return True
        if any(words in answer for words in _TAKEN):
            return False
        raise self.failure(answer)

    def end_forward(self, local_port: int, port: int) -> None:
        del port
        self._answer("forward", "--remove", f"tcp:{local_port}")

    def failure(self, answer: bytes) -> ArmloadError:
        message = self._complaint(answer)
        if "more than one device" in message:
            serials = ", ".join(self._devices())
            return ConnectError(
                f"{self._name}: adb sees several devices: {serials}.",
                f"Choose one as 'serial' under 'reach' in boards/{self._name}.yaml.",
            )
        if "no devices/emulators found" in message:
            return ConnectError(
                f"{self._name}: adb sees no device.",
                "Check the cable and USB debugging. For a device on the network: adb connect "
                "ADDRESS:PORT. List devices: adb devices -l",
            )
        if re.search("device .*not found", message):
            devices = self._devices()
            seen = (
                f"It sees: {', '.join(devices)}." if devices else "It sees none: check the cable."
            )
            return ConnectError(
                f"{self._name}: adb sees no device {self.key or ''}".rstrip() + ".",
                f"{seen} Set 'serial' under 'reach' in boards/{self._name}.yaml.",
            )
        if "unauthorized" in message or "still authorizing" in message:
            return ConnectError(
                f"{self._name}: the device has not allowed this machine to debug it.",
                f"Confirm this machine on the device's screen; if it does not ask: {self.restart}",
            )
        if "permissions" in message:
            return ConnectError(
                f"{self._name}: this user has no permission to use the device: {message}.",
                "Install the udev rules for Android devices (Debian: "
                "android-sdk-platform-tools-common), or restart adb as root.",
            )
        return ConnectError(
            f"{self._name}: adb failed: {message or 'it printed no reason'}.",
            "Check the device: adb devices -l. If that does not help, restart adb: adb kill-server",
        )

    def _not_copied(self, answer: bytes, remote: PurePosixPath) -> ArmloadError:
        if b"no space left" in answer.lower():
            return BoardError(f"{self._name}: {remote}: No space left on device.")
        return self.failure(answer)

    def _devices(self) -> list[str]:
        lines = self.lines(self._answer("devices", any_device=True))
        return [line.split("\t")[0] for line in lines if "\t" in line]


class AdbHost(DeviceHost):
    """The Host protocol over ``adb``."""

    def __init__(self, reach: AdbReach, board_name: str) -> None:
        super().__init__(AdbTool(reach.program, reach.serial, board_name), board_name)
