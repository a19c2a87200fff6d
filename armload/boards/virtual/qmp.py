"""The QEMU machine protocol: pulling a cable, slowing a disk, cutting the power.

Protocol: "QEMU Machine Protocol Specification" of QEMU's documentation.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from armload.core.errors import BoardError

_ANSWER_LIMIT_S = 5.0


class Qmp:
    """A session with one running QEMU.

    Args:
        path: its control socket.

    Raises:
        BoardError: nothing answers there.
    """

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(_ANSWER_LIMIT_S)
        try:
            self._socket.connect(str(path))
            self._lines = self._socket.makefile("rb")
            self._lines.readline()
        except OSError as error:
            self._socket.close()
            raise BoardError(f"QEMU does not answer at {path}: {error}.") from error
        self.execute("qmp_capabilities")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._lines.close()
        self._socket.close()

    def execute(self, command: str, arguments: Mapping[str, object] | None = None) -> Any:
        """Send one command and return its answer.

        Raises:
            BoardError: QEMU refuses it or ends.
        """
        message = {"execute": command, "arguments": dict(arguments or {})}
        try:
            self._socket.sendall(json.dumps(message).encode() + b"\n")
            while line := self._lines.readline():
                answer = json.loads(line)
                if "return" in answer:
                    return answer["return"]
                if "error" in answer:
                    raise BoardError(f"QEMU refuses {command}: {answer['error']['desc']}.")
        except OSError as error:
            raise BoardError(f"QEMU does not answer {command}: {error}.") from error
        raise BoardError(f"QEMU exited before it answered {command}.")
