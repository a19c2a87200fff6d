"""Bounds in time, bytes and values on what other programs, machines and people provide."""

from __future__ import annotations

import os
import queue
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple, TypeVar, cast

from armload.core.children import known
from armload.core.errors import DataError
from armload.core.files import unreadable

Result = TypeVar("Result")

_PIECE_BYTES = 1 << 16
_LOOK_EVERY_S = 0.05


class TooMuchError(Exception):
    """There is more than may be read; says how much may."""

    def __init__(self, most_bytes: int) -> None:
        super().__init__(f"it wrote more than {size_words(most_bytes)}")


class Finished(NamedTuple):
    """What a program left: its exit status, and what it wrote."""

    status: int
    stdout: bytes
    stderr: bytes


def size_words(count: int) -> str:
    """Write a limit for people: ``64 KiB``, ``16 MiB``, ``1 GiB``."""
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if count >= 1 << shift:
            return f"{count >> shift} {unit}"
    return f"{count} bytes"


def within(limit_s: float, act: Callable[[], Result]) -> Result:
    """Return what a call returns, or raise what it raises.

    It is for calls whose own timeout starts anew with each byte. An overdue one is left behind in
    its thread: whoever calls closes what it waits for.

    Raises:
        TimeoutError: it did not end in time.
    """
    outcome: queue.SimpleQueue[tuple[Result | None, BaseException | None]] = queue.SimpleQueue()

    def work() -> None:
        try:
            outcome.put((act(), None))
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            outcome.put((None, error))

    threading.Thread(target=work, daemon=True).start()
    try:
        result, error = outcome.get(timeout=limit_s)
    except queue.Empty:
        raise TimeoutError(f"it did not end within {limit_s:g} s") from None
    if error is not None:
        raise error
    return cast("Result", result)


def run_bounded(
    words: Sequence[str],
    *,
    most_bytes: int,
    limit_s: float,
    environment: Mapping[str, str] | None = None,
    given: bytes = b"",
) -> Finished:
    """Run a program to its end, and return what it wrote.

    It and its children end when it exceeds a limit. What it leaves running when it ends is no
    longer read.

    Args:
        most_bytes: of both of its streams together.
        given: its standard input. What it leaves unread when it ends is dropped.

    Raises:
        OSError: it cannot be started.
        TooMuchError: it wrote more.
        TimeoutError: it did not end in time.
    """
    deadline = time.monotonic() + limit_s
    process = subprocess.Popen(
        words,
        stdin=subprocess.PIPE if given else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        env=environment,
        start_new_session=True,
    )
    with process, known(process):
        try:
            return _read_to_its_end(process, memoryview(given), most_bytes, deadline, limit_s)
        finally:
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)


def _read_to_its_end(
    process: subprocess.Popen[bytes],
    given: memoryview,
    most_bytes: int,
    deadline: float,
    limit_s: float,
) -> Finished:
    outputs = {cast("IO[bytes]", each): bytearray() for each in (process.stdout, process.stderr)}
    with selectors.DefaultSelector() as selector:
        for stream in outputs:
            os.set_blocking(stream.fileno(), False)
            selector.register(stream, selectors.EVENT_READ)
        if process.stdin:
            os.set_blocking(process.stdin.fileno(), False)
            selector.register(process.stdin, selectors.EVENT_WRITE)
        while True:
            # Asked before it is read: what it wrote last is read then.
            has_ended = process.poll() is not None
            ready = selector.select(0 if has_ended else _LOOK_EVERY_S)
            for key, _ in ready:
                stream = cast("IO[bytes]", key.fileobj)
                if stream is process.stdin:
                    given = _feed(selector, stream, given)
                elif block := stream.read(_PIECE_BYTES):
                    outputs[stream] += block
                else:
                    selector.unregister(stream)
            if sum(map(len, outputs.values())) > most_bytes:
                raise TooMuchError(most_bytes)
            if has_ended and not ready:
                return Finished(process.returncode, *map(bytes, outputs.values()))
            if time.monotonic() > deadline:
                raise TimeoutError(f"no answer within {limit_s:g} s")


def _feed(selector: selectors.BaseSelector, stream: IO[bytes], given: memoryview) -> memoryview:
    """Write what a pipe takes now, and return what is left; nothing where nobody reads it."""
    try:
        left = given[os.write(stream.fileno(), given[:_PIECE_BYTES]) :]
    except BrokenPipeError:
        left = given[:0]
    if not left:
        selector.unregister(stream)
        stream.close()
    return left


def read_bounded(path: Path, most_bytes: int, remedy: str = "") -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(most_bytes + 1)
    except OSError as error:
        raise unreadable(path, error) from error
    if len(content) > most_bytes:
        raise DataError(f"{path}: larger than {size_words(most_bytes)}, the limit.", remedy)
    return content
