"""A board reached by ``hdc``, OpenHarmony's tool, and what that one's answers mean.

It ends with status 0 whatever happens, and says what went wrong among the output. Words as in the
OpenHarmony project's documentation (hdc.md) and in its source (developtools_hdc).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from armload.boards.board import HdcReach
from armload.boards.device import DeviceHost
from armload.boards.device_tool import DeviceTool, time_to_grow, time_to_send
from armload.core.errors import ArmloadError, BoardError, ConnectError

_FINISHED = re.compile(rb"FileTransfer finish, Size:(\d+)")
_NO_SUCH_DEVICE = ("Not match target", "Device not founded", "device not found", "not found device")
_NOT_ALLOWED = ("E000002", "E000003", "E000004", "nauthorized")


class HdcTool(DeviceTool):
    """See ``DeviceTool``. It puts double quotes around a command and takes them off again."""

    name = "hdc"
    choosing = "-t"
    sending = "hdc file send"
    forwarding = "hdc fport"
    why_framed = "hdc reports no exit status, merges the streams and drops NUL bytes"
    no_resuming = "hdc cannot resume an interrupted transfer"
    restart = "hdc kill -r"
    comes_with = "OpenHarmony's SDK (toolchains)"
    listening_remedy = (
        "Update hdc: current releases listen on 127.0.0.1, unless their server was started with -e."
    )
    complains = ("[Fail]", "[E0", "Connect server failed")

    def send(self, local: Path, remote: PurePosixPath) -> None:
        size = local.stat().st_size
        words = ("file", "send", str(local), str(remote))
        self._check_copied(self._transfer(words, time_to_send(size)), words, size)

    def receive(self, remote: PurePosixPath, local: Path, size: int) -> None:
        words = ("file", "recv", str(remote), str(local))
        self._check_copied(self._transfer(words, time_to_grow(local, size)), words, size)
        self._check_whole(local, remote, size)

    def forward(self, local_port: int, port: int) -> bool:
        answer = self._answer("fport", f"tcp:{local_port}", f"tcp:{port}")
        if b"Forwardport result:OK" in answer:
            return True
        if b"Port listen failed" in answer:
            return False
        raise self.failure(answer)

    def end_forward(self, local_port: int, port: int) -> None:
        self._answer("fport", "rm", f"tcp:{local_port}", f"tcp:{port}")

    def failure(self, answer: bytes) -> ArmloadError:
        message = self._complaint(answer)
        if "need connect-key" in message:
            if len(keys := self._targets()) > 1:
                return ConnectError(
                    f"{self._name}: hdc sees {len(keys)} devices: {', '.join(keys)}.",
                    f"Choose one as 'key' under 'reach' in boards/{self._name}.yaml.",
                )
            return ConnectError(
                f"{self._name}: hdc sees no device.",
                "Check the cable and USB debugging. For a device on the network: hdc tconn "
                "ADDRESS:PORT. List devices: hdc list targets -v",
            )
        if any(words in message for words in _NO_SUCH_DEVICE):
            keys = self._targets()
            seen = f"It sees: {', '.join(keys)}." if keys else "It sees none: check the cable."
            return ConnectError(
                f"{self._name}: hdc sees no device {self.key or ''}".rstrip() + ".",
                f"{seen} Set 'key' under 'reach' in boards/{self._name}.yaml.",
            )
        if any(words in message for words in _NOT_ALLOWED):
            return ConnectError(
                f"{self._name}: the device has not allowed this machine to debug it.",
                "Confirm this machine on the device's screen; if it does not ask: hdc kill -r",
            )
        if "Connect server failed" in message or "E000001" in message:
            return ConnectError(
                f"{self._name}: hdc cannot connect to its own server: {message}.",
                "Another release of hdc may be running. Restart it: hdc kill -r",
            )
        return ConnectError(
            f"{self._name}: hdc failed: {message or 'it printed no reason'}.",
            "Check the cable: hdc list targets -v. If that does not help, restart hdc: hdc kill -r",
        )

    def _targets(self) -> list[str]:
        lines = self.lines(self._answer("list", "targets", any_device=True))
        return [line for line in lines if not line.startswith("[")]

    def _check_copied(self, answer: bytes, words: Sequence[str], size: int) -> None:
        finished = _FINISHED.search(answer)
        if finished is not None and int(finished[1]) == size:
            return
        if b"no space left" in answer.lower():
            raise BoardError(f"{self._name}: {words[-1]}: No space left on device.")
        if finished is not None:
            raise ConnectError(
                f"{self._name}: hdc copied {int(finished[1])} of {size} bytes of {words[2]}."
            )
        raise self.failure(answer)


class HdcHost(DeviceHost):
    """The Host protocol over ``hdc``."""

    def __init__(self, reach: HdcReach, board_name: str) -> None:
        super().__init__(HdcTool(reach.program, reach.key, board_name), board_name)
