"""A port on a board, reached by ``hdc fport``."""

from __future__ import annotations

import contextlib
import errno
import socket

from armload.boards import hdc_rules
from armload.boards.forward import LOOPBACK, End
from armload.boards.hdc_tool import HdcTool
from armload.boards.virtual.process import free_port
from armload.core.errors import ArmloadError, ConnectError

_PORT_ATTEMPTS = 3


class HdcForward:
    """hdc's own server listens on a second local port, and drops it when the device disconnects.

    It goes on listening when this process is killed; the next forward of the device ends that.
    """

    def __init__(self, tool: HdcTool, board_name: str, port: int) -> None:
        self._tool = tool
        self._name = board_name
        self._port = port
        for rule in hdc_rules.left_behind(tool.key):
            tool.end_forward(rule.local_port, rule.port)
            hdc_rules.forget(rule.local_port)
        for _ in range(_PORT_ATTEMPTS):
            self._local_port = free_port()
            hdc_rules.note(tool.key, self._local_port, port)
            if tool.forward(self._local_port, port):
                break
            hdc_rules.forget(self._local_port)
        else:
            raise ConnectError(
                f"{board_name}: hdc cannot listen on any local port.",
                "Starting hdc anew helps at times: hdc kill -r",
            )
        if _is_taken_beside(self._local_port):
            self.close()
            raise ConnectError(
                f"{board_name}: hdc would open the board's port {port} to this machine's networks.",
                "Update hdc: current releases listen on 127.0.0.1, unless their server was started "
                "with -e.",
            )

    def dial(self) -> End | None:
        """Connect to the port."""
        try:
            return socket.create_connection((LOOPBACK, self._local_port))
        except OSError as error:
            raise ConnectError(f"{self._name}: hdc no longer forwards the port.") from error

    def close(self) -> None:
        """End the forwarding."""
        with contextlib.suppress(ArmloadError):
            self._tool.end_forward(self._local_port, self._port)
            hdc_rules.forget(self._local_port)


def _is_taken_beside(port: int) -> bool:
    """Say whether what listens on a port of 127.0.0.1 listens on other addresses, too."""
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.2", port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False
