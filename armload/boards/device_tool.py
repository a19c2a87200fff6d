"""Calls of a program that reaches devices by a cable or a network, such as ``hdc`` and ``adb``."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, ClassVar, Protocol

from armload.boards.bulk import (
    MOST_OUTPUT_BYTES,
    MOST_STREAM_BYTES,
    READ_BYTES,
    TRANSFER_SILENCE_S,
    too_much,
)
from armload.core.bounds import size_words
from armload.core.children import known
from armload.core.errors import ArmloadError, ConnectError, MissingToolError

_LOOK_EVERY_S = 0.02
_CALL_TIMEOUT_S = 60.0
_WORST_BYTES_PER_S = 50_000
_MOST_ANSWER_BYTES = 1 << 20


def time_to_send(size: int) -> Callable[[], float]:
    """Return how long a file may still take to be sent; tools say nothing before the end."""
    # A serial line carries some 90 kB/s.
    deadline = time.monotonic() + TRANSFER_SILENCE_S + size / _WORST_BYTES_PER_S
    return lambda: deadline - time.monotonic()


def time_to_grow(local: Path, size: int) -> Callable[[], float]:
    """Return how long may be waited for a file that is being fetched to grow, to that size."""
    seen, moved_at = -1, 0.0

    def left_s() -> float:
        nonlocal seen, moved_at
        now = local.stat().st_size if local.exists() else 0
        if now > size:
            return 0.0
        if now != seen:
            seen, moved_at = now, time.monotonic()
        return moved_at + TRANSFER_SILENCE_S - time.monotonic()

    return left_s


class DeviceTool(Protocol):
    """The program, for one device; what it prints is read as one stream.

    Attributes:
        name: by which people know it.
        choosing: its option for the device.
        sending, forwarding: its words for copying a file and for forwarding a port.
        why_framed: why a command's streams and status are told as text.
        no_resuming: what it cannot do that makes files go in slices.
        restart: the line that restarts the server that it leaves behind.
        comes_with: where it is to be had.
        listening_remedy: what keeps it from listening on all addresses of this machine.
        complains: how its own complaints begin.
        own_server: how lines on its own server begin.
        key: of the device; none for the only one.

    Args:
        program: its path or name.
    """

    name: ClassVar[str]
    choosing: ClassVar[str]
    sending: ClassVar[str]
    forwarding: ClassVar[str]
    why_framed: ClassVar[str]
    no_resuming: ClassVar[str]
    restart: ClassVar[str]
    comes_with: ClassVar[str]
    listening_remedy: ClassVar[str]
    complains: ClassVar[tuple[str, ...]]
    own_server: ClassVar[tuple[str, ...]] = ()
    key: str | None
    _program: str
    _name: str

    def __init__(self, program: str, key: str | None, board_name: str) -> None:
        self._program = program
        self.key = key
        self._name = board_name

    def send(self, local: Path, remote: PurePosixPath) -> None:
        """Copy a file to the device; both names must be plain."""

    def receive(self, remote: PurePosixPath, local: Path, size: int) -> None:
        """Copy a file from the device; both names must be plain."""

    def forward(self, local_port: int, port: int) -> bool:
        """Let its server listen on a local port for one of the device; False if that is taken."""

    def end_forward(self, local_port: int, port: int) -> None:
        """Undo ``forward``; harmless when the tool has done so itself."""

    def failure(self, answer: bytes) -> ArmloadError:
        """Return what an answer means that holds no result."""

    def lines(self, answer: bytes) -> list[str]:
        """Return the lines of an answer that are not empty, and not about the tool's own server."""
        lines = (line.strip() for line in answer.decode("utf-8", "replace").splitlines())
        return [line for line in lines if line and not line.startswith(self.own_server)]

    def is_failure(self, line: str) -> bool:
        """Say whether a line is the tool's own complaint."""
        return line.startswith(self.complains)

    def shell(self, line: str, left_s: Callable[[float], float], complaint: str) -> Iterator[bytes]:
        """Run a line in the device's shell and yield what it says, as it comes.

        Args:
            line: one argument.
            left_s: from the monotonic time, how long something may be waited for.
            complaint: what is wrong when that has passed.

        Raises:
            ConnectError: the complaint.
        """
        left_bytes = MOST_STREAM_BYTES
        with self._started("shell", line) as (process, output):
            while True:
                ended = process.poll() is not None
                if data := output.read(READ_BYTES):
                    yield data
                    left_bytes -= len(data)
                elif ended:
                    return
                else:
                    time.sleep(_LOOK_EVERY_S)
                if left_s(time.monotonic()) <= 0:
                    raise ConnectError(complaint)
                if left_bytes < 0 or self._unread(output) > MOST_OUTPUT_BYTES:
                    raise too_much(self._name, MOST_STREAM_BYTES)

    def run_lines(self, line: str) -> list[str]:
        """Run a short line in the device's shell and return its lines.

        Raises:
            ConnectError: it could not reach the device.
        """
        deadline = time.monotonic() + _CALL_TIMEOUT_S
        late = f"{self._name}: {self.name} did not answer within {_CALL_TIMEOUT_S:g} s."
        answer = bytearray()
        for data in self.shell(line, lambda now: deadline - now, late):
            answer += data
            if len(answer) > _MOST_ANSWER_BYTES:
                raise too_much(self._name, _MOST_ANSWER_BYTES)
        lines = self.lines(bytes(answer))
        if any(self.is_failure(each) for each in lines):
            raise self.failure(bytes(answer))
        return lines

    def _complaint(self, answer: bytes) -> str:
        """Return the tool's own complaint; all of the answer where it has none."""
        lines = self.lines(answer)
        return next((line for line in lines if self.is_failure(line)), " ".join(lines))

    def _check_whole(self, local: Path, remote: PurePosixPath, size: int) -> None:
        """Check that a file was fetched whole; raises ``ConnectError`` if not."""
        if not local.is_file() or local.stat().st_size != size:
            raise ConnectError(f"{self._name}: {self.name} fetched only part of {remote}.")

    def _transfer(self, words: Sequence[str], left_s: Callable[[], float]) -> bytes:
        """Run the tool to its end and return its answer; raises ``ConnectError`` when it hangs."""
        with self._started(*words) as (process, output):
            while process.poll() is None:
                self._check_little(output)
                if left_s() <= 0:
                    raise ConnectError(f"{self._name}: the board stopped responding.")
                time.sleep(_LOOK_EVERY_S)
            self._check_little(output)
            return output.read()

    def _answer(self, *words: str, any_device: bool = False) -> bytes:
        deadline = time.monotonic() + _CALL_TIMEOUT_S
        with self._started(*words, any_device=any_device) as (process, output):
            while process.poll() is None and time.monotonic() < deadline:
                self._check_little(output)
                time.sleep(_LOOK_EVERY_S)
            self._check_little(output)
            return output.read()

    @staticmethod
    def _unread(output: IO[bytes]) -> int:
        return os.fstat(output.fileno()).st_size - output.tell()

    def _check_little(self, output: IO[bytes]) -> None:
        if self._unread(output) > _MOST_ANSWER_BYTES:
            raise ConnectError(
                f"{self._name}: {self.name} wrote more than {size_words(_MOST_ANSWER_BYTES)}; it "
                "was ended.",
                f"Check the program {self._program}: it prints without end.",
            )

    @contextlib.contextmanager
    def _started(
        self, *words: str, any_device: bool = False
    ) -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes]]]:
        device = [] if self.key is None or any_device else [self.choosing, self.key]
        # A file, no pipe: the server that it may start holds on to its output.
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
                    f"It comes with {self.comes_with}. Add it to PATH, or name it "
                    f"as 'program' under 'reach' in boards/{self._name}.yaml.",
                ) from error
            with known(process, is_kept=True):
                try:
                    yield process, reader
                finally:
                    if process.poll() is None:
                        # What it started itself, too; a server of its own, which may be among
                        # that, is started again by the next call.
                        with contextlib.suppress(ProcessLookupError):
                            os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
