"""Standard output and error: encodings, a reader that goes away, and the one JSON document.

Python has no stream at all where a descriptor is closed, and hands its number to the next file or
socket. A standard error that is full or closed must not end a run, or change its exit status.
"""

from __future__ import annotations

import io
import json
import os
import re
import sys
from contextvars import ContextVar
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer
    from pydantic import BaseModel


STANDARD_OUTPUT = "standard output"
"""The file name of an error that comes from writing there."""


class _Named(io.FileIO):
    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            error.filename = STANDARD_OUTPUT
            raise


class _Forgiving(io.FileIO):
    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def make_streams_usable() -> None:
    """Open closed streams on the null device, and let no character or full disk stop a message.

    Errors of standard output carry ``STANDARD_OUTPUT``; those of standard error are dropped.
    Characters that a stream's encoding lacks are written as escapes.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    if sys.stdin is None:
        sys.stdin = io.TextIOWrapper(io.FileIO(0, closefd=False), encoding="utf-8")
    elif isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")
    sys.stdout = _stream(_Named(1, "w", closefd=False), sys.stdout)
    sys.stderr = _stream(_Forgiving(2, "w", closefd=False), sys.stderr, line_buffering=True)


def discard_output() -> None:
    """Let what is still to be written to standard output go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _stream(
    raw: io.FileIO, given: TextIO | None, *, line_buffering: bool = False
) -> io.TextIOWrapper:
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding="utf-8" if given is None else given.encoding,
        errors="backslashreplace",
        line_buffering=line_buffering or raw.isatty(),
    )


_is_owed: ContextVar[bool] = ContextVar("_is_owed", default=False)


def promise_document(*, wanted: bool) -> None:
    """Say at a verb's start whether it owes a document."""
    _is_owed.set(wanted)


def is_document_owed() -> bool:
    """Say whether the verb promised a document and has not printed it yet."""
    return _is_owed.get()


def show_document(value: BaseModel) -> None:
    """Print a verb's document.

    Characters that standard output's encoding lacks are written as JSON's escapes.
    """
    from armload.core.values import as_json

    text = as_json(value)
    try:
        text.encode(sys.stdout.encoding)
    except UnicodeEncodeError:
        text = re.sub(r"[^\x00-\x7f]", lambda match: json.dumps(match[0])[1:-1], text)
    # Half a document is none, but two are worse: an interruption from here on prints no other.
    _is_owed.set(False)
    print(text, end="")
