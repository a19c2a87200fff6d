"""This machine as a board: commands run in its own shell, without SSH."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, cast

from armload.boards.bulk import (
    READ_BYTES,
    NotStartedError,
    StreamProcess,
    output_chunks,
    whole_output,
)
from armload.boards.failures import SlowCommandError
from armload.boards.forward import LocalTunnel, proxied
from armload.boards.framing import READING, after_mark, bounded, marked, receiving, to_be_read
from armload.boards.host import Completed, Forward, OutputChunk, TransportChoice
from armload.core.children import known
from armload.core.errors import BoardError, ConnectError
from armload.core.shell import quote

# Linux takes no single argument above 128 KiB.
LONGEST_COMMAND_BYTES = 100_000
_BEGIN_WITHIN_S = 30.0


@dataclass(frozen=True, kw_only=True)
class _SamePort:
    port: int

    def check(self) -> None:
        """Return: nothing lies between."""


class LocalHost:
    """The Host protocol in this machine's own shell."""

    def __init__(self, board_name: str, launcher: tuple[str, ...] = ()) -> None:
        self._name = board_name
        self._launcher = launcher

    @property
    def name(self) -> str:
        return self._name

    @property
    def named(self) -> str:
        return f"--board {self._name}"

    @property
    def launcher(self) -> tuple[str, ...]:
        return self._launcher

    def transports(self) -> tuple[TransportChoice, ...]:
        """Return how commands, data and clients reach the shell and its programs."""
        own = "the board is this machine"
        return (
            TransportChoice(purpose="commands", chosen="sh -c", reason=own),
            TransportChoice(
                purpose="long commands",
                chosen="a shell's standard input",
                reason=f"the kernel accepts no argument longer than {LONGEST_COMMAND_BYTES} bytes",
            ),
            TransportChoice(purpose="bulk data", chosen="cat", reason=own),
            TransportChoice(purpose="port forwarding", chosen="the port itself", reason=own),
        )

    def run(self, command: str, *, stdin: bytes = b"", timeout_s: float = 60.0) -> Completed:
        deadline = time.monotonic() + timeout_s
        late = f"{self._name}: no answer within {timeout_s:g} s."
        with self._started(bounded(command, timeout_s), stdin) as process:
            try:
                stdout, stderr = whole_output(self._name, *_streams(process), deadline, late)
                status = self._status(process, max(deadline - time.monotonic(), 1.0), late)
            except ConnectError as error:
                raise SlowCommandError(self._name, timeout_s) from error
        return Completed(status=status, stdout=stdout, stderr=stderr)

    def stream(
        self, command: str, *, silence_s: float = 30.0
    ) -> Generator[OutputChunk, None, None]:
        late = f"{self._name}: no data for {silence_s:g} s."
        with self._started(command, b"") as process:
            yield from output_chunks(self._name, *_streams(process), lambda: silence_s, late)
            self._status(process, silence_s, late)

    def read(self, path: PurePosixPath) -> Iterator[bytes]:
        with self._translated():
            blocks = self._carrier(f"cat <{quote(path)}").read(path)
            next(blocks)
            yield from blocks

    def write(self, path: PurePosixPath, chunks: Iterable[bytes], *, offset_bytes: int = 0) -> None:
        with self._translated():
            self._carrier(receiving(path, offset_bytes)).write(path, chunks)

    def send_file(
        self, local: Path, remote: PurePosixPath, *, offset_bytes: int, sent: Callable[[int], None]
    ) -> None:
        with self._translated():
            self._carrier(receiving(remote, offset_bytes)).send_file(
                local, remote, offset_bytes=offset_bytes, sent=sent
            )

    @contextlib.contextmanager
    def forwarded(self, port: int, local_port: int = 0) -> Iterator[Forward]:
        """Give the port itself, unless another one is asked for."""
        if local_port in (0, port):
            yield _SamePort(port=port)
            return
        with proxied(lambda: LocalTunnel(port), self._name, local_port) as proxy:
            yield proxy

    @contextlib.contextmanager
    def reverse_forwarded(self, local_port: int) -> Iterator[int]:
        yield local_port

    def close(self) -> None:
        """Do nothing: there is no connection."""

    def _carrier(self, command: str) -> StreamProcess:
        return StreamProcess(
            ["sh", "-c", marked(command)],
            self._name,
            begin_within_s=_BEGIN_WITHIN_S,
            broken_status=None,
        )

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except NotStartedError as error:
            raise BoardError(f"{self._name}: cannot start a shell: {error}.") from error

    @contextlib.contextmanager
    def _started(self, command: str, stdin: bytes) -> Iterator[subprocess.Popen[bytes]]:
        words = ["sh", "-c", marked(command)]
        if len(words[-1].encode("utf-8", "surrogateescape")) > LONGEST_COMMAND_BYTES:
            words, stdin = ["sh", "-c", READING], to_be_read(words[-1]) + stdin
        try:
            process = subprocess.Popen(
                words,
                stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise BoardError(f"{self._name}: cannot start a shell: {error.strerror}.") from error
        with known(process, is_kept=True):
            try:
                if stdin:
                    feeder = threading.Thread(target=_feed, args=(process, stdin), daemon=True)
                    feeder.start()
                yield process
            finally:
                # What a finished command leaves running keeps running; one that is given up ends
                # entirely.
                if process.poll() is None:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
                    process.wait()

    def _status(self, process: subprocess.Popen[bytes], timeout_s: float, late: str) -> int:
        try:
            status = process.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            raise ConnectError(late) from error
        return status if status >= 0 else 128 - status


def _streams(process: subprocess.Popen[bytes]) -> tuple[Iterator[bytes], Iterator[bytes]]:
    stdout, stderr = cast("IO[bytes]", process.stdout), cast("IO[bytes]", process.stderr)
    return after_mark(_blocks(stdout)), _blocks(stderr)


def _blocks(stream: IO[bytes]) -> Iterator[bytes]:
    with stream:
        yield from iter(lambda: os.read(stream.fileno(), READ_BYTES), b"")


def _feed(process: subprocess.Popen[bytes], stdin: bytes) -> None:
    with contextlib.suppress(OSError), cast("IO[bytes]", process.stdin) as sink:
        sink.write(stdin)
