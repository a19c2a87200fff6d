"""Calls of the program ``hdc``, and what its answers mean.

It ends with status 0 whatever happens, and says what went wrong among the output. Words as in the
OpenHarmony project's documentation (hdc.md) and in its source (developtools_hdc).
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import IO

from armload.boards.bulk import TRANSFER_SILENCE_S
from armload.core.children import known
from armload.core.errors import ArmloadError, BoardError, ConnectError, MissingToolError

_CALL_TIMEOUT_S = 60.0
_WORST_BYTES_PER_S = 50_000
_LOOK_EVERY_S = 0.02
_FINISHED = re.compile(rb"FileTransfer finish, Size:(\d+)")
_NO_SUCH_DEVICE = ("Not match target", "Device not founded", "device not found", "not found device")
_NOT_ALLOWED = ("E000002", "E000003", "E000004", "nauthorized")


class HdcTool:
    """The program, for one device.

    Attributes:
        key: of the device; none for the only one.

    Args:
        program: its path or name.
    """

    def __init__(self, program: str, key: str | None, board_name: str) -> None:
        self._program = program
        self.key = key
        self._name = board_name

    def shell(
        self, line: str, patience_s: Callable[[float], float], complaint: str
    ) -> Iterator[bytes]:
        """Run a line in the device's shell and yield what it says, as it comes.

        Args:
            line: one argument: hdc puts double quotes around it and takes them off again.
            patience_s: from the monotonic time, how long something may be waited for.
            complaint: what is wrong when that has passed.

        Raises:
            ConnectError: the complaint.
        """
        with self._started("shell", line) as (process, output):
            while True:
                ended = process.poll() is not None
                if data := output.read():
                    yield data
                elif ended:
                    return
                elif patience_s(time.monotonic()) <= 0:
                    raise ConnectError(complaint)
                else:
                    time.sleep(_LOOK_EVERY_S)

    def run_lines(self, line: str) -> list[str]:
        """Run a short line in the device's shell and return its lines.

        Raises:
            ConnectError: hdc could not reach the device.
        """
        deadline = time.monotonic() + _CALL_TIMEOUT_S
        late = f"{self._name}: hdc did not answer within {_CALL_TIMEOUT_S:g} s."
        answer = b"".join(self.shell(line, lambda now: deadline - now, late))
        lines = output_lines(answer)
        if any(_is_failure(each) for each in lines):
            raise self.failure(answer)
        return lines

    def send(self, local: Path, remote: PurePosixPath) -> None:
        """Copy a file to the device; both names must be plain.

        Raises:
            BoardError: it has no room.
            ConnectError: the file did not arrive whole.
        """
        size = local.stat().st_size
        # It says nothing before the end; a serial line carries some 90 kB/s.
        deadline = time.monotonic() + TRANSFER_SILENCE_S + size / _WORST_BYTES_PER_S
        self._transfer(
            ("file", "send", str(local), str(remote)), size, lambda: deadline - time.monotonic()
        )

    def receive(self, remote: PurePosixPath, local: Path, size: int) -> None:
        """Copy a file from the device; both names must be plain. Errors as for ``send``."""
        seen, moved_at = -1, 0.0

        def patience_s() -> float:
            nonlocal seen, moved_at
            now = local.stat().st_size if local.exists() else 0
            if now != seen:
                seen, moved_at = now, time.monotonic()
            return moved_at + TRANSFER_SILENCE_S - time.monotonic()

        self._transfer(("file", "recv", str(remote), str(local)), size, patience_s)
        if not local.is_file() or local.stat().st_size != size:
            raise ConnectError(f"{self._name}: hdc fetched only a part of {remote}.")

    def forward(self, local_port: int, port: int) -> bool:
        """Let hdc's server listen on a local port for one of the device; False if that is taken.

        Raises:
            ConnectError: hdc could not reach the device, or is not able to.
        """
        answer = self._answer("fport", f"tcp:{local_port}", f"tcp:{port}")
        if b"Forwardport result:OK" in answer:
            return True
        if b"Port listen failed" in answer:
            return False
        raise self.failure(answer)

    def end_forward(self, local_port: int, port: int) -> None:
        """Undo ``forward``; harmless when hdc has done so itself."""
        self._answer("fport", "rm", f"tcp:{local_port}", f"tcp:{port}")

    def failure(self, answer: bytes) -> ArmloadError:
        """Return what an answer means that holds no result."""
        lines = output_lines(answer)
        message = next((line for line in lines if _is_failure(line)), " ".join(lines))
        if "need connect-key" in message:
            return self._which()
        if any(words in message for words in _NO_SUCH_DEVICE):
            return ConnectError(
                f"{self._name}: hdc sees no device {self.key or ''}".rstrip() + ".",
                f"{self._attached()} Set 'key' under 'reach' in boards/{self._name}.yaml.",
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

    def _which(self) -> ConnectError:
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

    def _attached(self) -> str:
        keys = self._targets()
        return f"It sees: {', '.join(keys)}." if keys else "It sees none: check the cable."

    def _targets(self) -> list[str]:
        lines = output_lines(self._answer("list", "targets", any_device=True))
        return [line for line in lines if not line.startswith("[")]

    def _answer(self, *words: str, any_device: bool = False) -> bytes:
        with self._started(*words, any_device=any_device) as (process, output):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_CALL_TIMEOUT_S)
            return output.read()

    def _transfer(self, words: Sequence[str], size: int, patience_s: Callable[[], float]) -> None:
        with self._started(*words) as (process, output):
            while process.poll() is None:
                if patience_s() <= 0:
                    raise ConnectError(f"{self._name}: the board stopped responding.")
                time.sleep(_LOOK_EVERY_S)
            answer = output.read()
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

    @contextlib.contextmanager
    def _started(
        self, *words: str, any_device: bool = False
    ) -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes]]]:
        device = [] if self.key is None or any_device else ["-t", self.key]
        # A file, no pipe: the server that hdc may start holds on to its output.
        with tempfile.NamedTemporaryFile() as output, open(output.name, "rb") as reader:  # noqa: PTH123
            try:
                process = subprocess.Popen(
                    [self._program, *device, *words],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                raise MissingToolError(
                    f"{self._name}: {self._program} cannot be run: {error.strerror}.",
                    "It comes with OpenHarmony's SDK (toolchains). Add it to PATH, or name it "
                    f"as 'program' under 'reach' in boards/{self._name}.yaml.",
                ) from error
            with known(process):
                try:
                    yield process, reader
                finally:
                    if process.poll() is None:
                        process.kill()
                    process.wait()


def output_lines(answer: bytes) -> list[str]:
    """Return the lines of an answer that are not empty."""
    text = answer.decode("utf-8", "replace")
    return [line.strip() for line in text.splitlines() if line.strip()]


def _is_failure(line: str) -> bool:
    return line.startswith(("[Fail]", "[E0", "Connect server failed"))
