"""Bytes to and from a board: in chunks through Python, or by a program of this machine.

No byte of a file that is sent passes through Python. The program shares the file's descriptor,
and with it the position, so that looking at ours tells how far it is.
"""

from __future__ import annotations

import contextlib
import os
import queue
import selectors
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, Literal, cast

from armload.boards.framing import UnmarkedError, after_mark, reason
from armload.boards.host import OutputChunk
from armload.core.bounds import size_words
from armload.core.children import known
from armload.core.errors import BoardError, ConnectError
from armload.core.files import CHUNK_BYTES

READ_BYTES = 1 << 18

MOST_OUTPUT_BYTES = 64 << 20
"""Of a command that is read to its end."""
MOST_STREAM_BYTES = 4 << 30
"""Of one whose output is passed on as it comes."""
_MOST_ERRORS_BYTES = 1 << 20
_MOST_WAITING = 64

_OutputChunks = queue.Queue[OutputChunk | None]


def too_much(board_name: str, most_bytes: int) -> BoardError:
    """Return the error of a command that does not stop writing."""
    return BoardError(
        f"{board_name}: a command wrote more than {size_words(most_bytes)}; it was ended.",
        "Check the board's tools: one of them prints without end.",
    )


def output_chunks(
    board_name: str,
    stdout: Iterable[bytes],
    stderr: Iterable[bytes],
    left_s: Callable[[], float],
    complaint: str,
    *,
    most_bytes: int = MOST_STREAM_BYTES,
) -> Iterator[OutputChunk]:
    """Read both streams to their ends, side by side."""
    # Whoever writes faster than is read waits.
    found: _OutputChunks = queue.Queue(_MOST_WAITING)
    given_up = threading.Event()
    streams: tuple[tuple[Literal["stdout", "stderr"], Iterable[bytes]], ...] = (
        ("stdout", stdout),
        ("stderr", stderr),
    )
    for name, blocks in streams:
        threading.Thread(target=_put, args=(name, blocks, found, given_up), daemon=True).start()
    open_streams, left_bytes = 2, most_bytes
    try:
        while open_streams:
            try:
                chunk = found.get(timeout=max(left_s(), 0.001))
            except queue.Empty as error:
                raise ConnectError(complaint) from error
            if chunk is None:
                open_streams -= 1
                continue
            left_bytes -= len(chunk[1])
            if left_bytes < 0:
                raise too_much(board_name, most_bytes)
            yield chunk
    finally:
        given_up.set()


def whole_output(
    board_name: str,
    stdout: Iterable[bytes],
    stderr: Iterable[bytes],
    deadline: float,
    complaint: str,
) -> tuple[bytes, bytes]:
    """Read both streams to their ends, and return what they held.

    Args:
        deadline: on this machine's monotonic clock.

    Raises:
        ConnectError: they have not ended by then; the complaint.
    """
    output = {"stdout": bytearray(), "stderr": bytearray()}

    def left_s() -> float:
        return deadline - time.monotonic()

    for stream, data in output_chunks(
        board_name, stdout, stderr, left_s, complaint, most_bytes=MOST_OUTPUT_BYTES
    ):
        output[stream] += data
        if left_s() <= 0:
            raise ConnectError(complaint)
    return bytes(output["stdout"]), bytes(output["stderr"])


def _put(
    name: Literal["stdout", "stderr"],
    blocks: Iterable[bytes],
    found: _OutputChunks,
    given_up: threading.Event,
) -> None:
    def give(chunk: OutputChunk | None) -> None:
        while not given_up.is_set():
            with contextlib.suppress(queue.Full):
                found.put(chunk, timeout=_LOOK_EVERY_S)
                return

    with contextlib.suppress(OSError, EOFError, ValueError):
        for data in blocks:
            if given_up.is_set():
                return
            if data:
                give((name, data))
    give(None)


TELL_EVERY_S = 0.2


def reporting_chunks(path: Path, offset_bytes: int, sent: Callable[[int], None]) -> Iterator[bytes]:
    """Yield a file's chunks from an offset on, telling ``sent`` how far they were taken."""
    with path.open("rb") as file:
        position = file.seek(offset_bytes)
        sent(position)
        reported_at = time.monotonic()
        while chunk := file.read(CHUNK_BYTES):
            yield chunk
            position += len(chunk)
            if time.monotonic() - reported_at >= TELL_EVERY_S:
                sent(position)
                reported_at = time.monotonic()
    sent(position)


TRANSFER_SILENCE_S = 60.0
_LOOK_EVERY_S = 0.2


class NotStartedError(Exception):
    """The program ended, or stayed silent, before it ran the command; says why."""


class StreamProcess:
    """Carries bytes to and from one file by a command that is run by a program.

    Args:
        words: the program and its arguments; it runs a command that was wrapped by ``marked``.
        begin_within_s: how long the program may take to run the command.
        broken_status: the exit status with which the program reports a dropped connection.
    """

    def __init__(
        self,
        words: Sequence[str],
        board_name: str,
        *,
        begin_within_s: float,
        broken_status: int | None,
    ) -> None:
        self._words = words
        self._name = board_name
        self._begin_within_s = begin_within_s
        self._broken_status = broken_status

    def check(self) -> bytes:
        """Run the command for its first part alone; return its standard error so far.

        Raises:
            NotStartedError: it does not come to that.
        """
        with self.started(subprocess.DEVNULL) as running:
            return running.stderr()

    @contextlib.contextmanager
    def started(self, stdin: int) -> Iterator[_Running]:
        """Run the program until the block ends, from where it runs the command.

        Raises:
            NotStartedError: it does not come to that.
        """
        with tempfile.TemporaryFile() as stderr:
            try:
                process = subprocess.Popen(
                    self._words,
                    stdin=stdin,
                    stdout=subprocess.PIPE,
                    stderr=stderr,
                    bufsize=0,
                    start_new_session=True,  # so that its own children end with it
                )
            except OSError as error:
                raise NotStartedError(
                    f"{self._words[0]} cannot be run: {error.strerror}"
                ) from error
            running = _Running(process, stderr)
            with known(process, is_kept=True):
                try:
                    running.begin(self._begin_within_s)
                    yield running
                finally:
                    running.end()

    def send_file(
        self, local: Path, path: PurePosixPath, *, offset_bytes: int, sent: Callable[[int], None]
    ) -> None:
        """Let the program read a file from an offset on; as ``Host.send_file``.

        Raises:
            NotStartedError: nothing was sent.
            BoardError: as there.
        """
        with local.open("rb", buffering=0) as file:
            position = file.seek(offset_bytes)
            sent(position)
            with self.started(file.fileno()) as running:
                moved_at = time.monotonic()
                while not running.ends_within(_LOOK_EVERY_S):
                    running.check_errors(self._name)
                    former, position = position, os.lseek(file.fileno(), 0, os.SEEK_CUR)
                    if position != former:
                        sent(position)
                        moved_at = time.monotonic()
                    elif time.monotonic() - moved_at > TRANSFER_SILENCE_S:
                        raise self._silent()
                self._check_done(running, f"{path} cannot be written")
            sent(os.lseek(file.fileno(), 0, os.SEEK_CUR))

    def write(self, path: PurePosixPath, chunks: Iterable[bytes]) -> None:
        """Give chunks to the command; errors as for ``send_file``."""
        with self.started(subprocess.PIPE) as running:
            sink = cast("IO[bytes]", running.process.stdin)
            os.set_blocking(sink.fileno(), False)
            with selectors.DefaultSelector() as selector:
                selector.register(sink, selectors.EVENT_WRITE)
                with contextlib.suppress(BrokenPipeError):
                    for chunk in chunks:
                        running.check_errors(self._name)
                        self._put(sink.fileno(), memoryview(chunk), selector)
            sink.close()
            if not running.ends_within(TRANSFER_SILENCE_S):
                raise self._silent()
            self._check_done(running, f"{path} cannot be written")

    def read(self, path: PurePosixPath) -> Iterator[bytes]:
        """Yield what the command writes, first nothing when it has begun; errors as above."""
        with self.started(subprocess.DEVNULL) as running:
            yield b""
            try:
                for block in running.output(TRANSFER_SILENCE_S):
                    running.check_errors(self._name)
                    yield block
            except TimeoutError as error:
                raise self._silent() from error
            if not running.ends_within(TRANSFER_SILENCE_S):
                raise self._silent()
            self._check_done(running, f"{path} cannot be read")

    def _put(self, sink: int, rest: memoryview, selector: selectors.BaseSelector) -> None:
        while rest:
            if not selector.select(TRANSFER_SILENCE_S):
                raise self._silent()
            with contextlib.suppress(BlockingIOError):
                rest = rest[os.write(sink, rest) :]

    def _silent(self) -> ConnectError:
        return ConnectError(f"{self._name}: the board stopped responding.")

    def _check_done(self, running: _Running, complaint: str) -> None:
        status = running.process.returncode
        if status < 0 or status == self._broken_status:
            stderr = running.stderr().decode("utf-8", "replace").strip().splitlines()
            detail = f": {stderr[-1].rstrip('.')}" if stderr else ""
            raise ConnectError(f"{self._name}: the connection dropped{detail}.")
        if status != 0:
            raise BoardError(f"{self._name}: {complaint}: {reason(running.stderr())}.")


class _Running:
    def __init__(self, process: subprocess.Popen[bytes], stderr: IO[bytes]) -> None:
        self.process = process
        self._stdout = cast("IO[bytes]", process.stdout)
        self._stderr = stderr
        self._deadline: float | None = None
        self._silence_s = 0.0
        self._blocks = after_mark(self._raw())

    def begin(self, within_s: float) -> None:
        """Wait until the command itself runs."""
        self._deadline = time.monotonic() + within_s
        try:
            next(self._blocks)
        except TimeoutError:
            raise NotStartedError(f"no answer within {within_s:g} s") from None
        except UnmarkedError as error:
            raise NotStartedError(str(error)) from None
        except StopIteration:
            self.ends_within(within_s)
            words = self.stderr().decode("utf-8", "replace").strip().splitlines()
            raise NotStartedError(words[-1].strip() if words else "it exited immediately") from None
        self._deadline = None

    def output(self, silence_s: float) -> Iterator[bytes]:
        """Yield the command's output.

        Raises:
            TimeoutError: nothing came for so long.
        """
        self._silence_s = silence_s
        return self._blocks

    def ends_within(self, timeout_s: float) -> bool:
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def stderr(self) -> bytes:
        self._stderr.seek(0)
        return self._stderr.read(_MOST_ERRORS_BYTES)

    def check_errors(self, board_name: str) -> None:
        """End what fills this machine's disk with complaints; raises ``BoardError``."""
        if os.fstat(self._stderr.fileno()).st_size > _MOST_ERRORS_BYTES:
            raise too_much(board_name, _MOST_ERRORS_BYTES)

    def end(self) -> None:
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._stdout.close()
        if self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()

    def _raw(self) -> Iterator[bytes]:
        with selectors.DefaultSelector() as selector:
            selector.register(self._stdout, selectors.EVENT_READ)
            while True:
                left_s = self._silence_s
                if self._deadline is not None:
                    left_s = max(self._deadline - time.monotonic(), 0.0)
                if not selector.select(left_s):
                    raise TimeoutError
                block = os.read(self._stdout.fileno(), READ_BYTES)
                if not block:
                    return
                yield block
