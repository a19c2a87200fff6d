"""The events of a stream as its bytes arrive: Server-Sent Events, or bare JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from pydantic_core import from_json

_DONE = b"[DONE]"
_BOM = b"\xef\xbb\xbf"
_LINE_END = re.compile(rb"\r\n?|\n")
_FIELD = re.compile(rb"[A-Za-z0-9_-]+:")
_LONGEST_EVENT = 1 << 24
"""llm-serving's last event holds all tokens of an answer."""
_LINE_COSTS = 64
"""Bytes of memory, beside its own, that a line of an event takes."""


class EventStream:
    """The events of one answer.

    Lines, fields and events are those of WHATWG's standard (HTML, 9.2.6). Beyond it, what real
    services send is read, too: an event counts at its ``data:`` line where that holds all of it,
    so that a missing blank line neither delays nor loses it; JSON stands on lines of its own
    (llm-serving) or is the whole answer (a service that does not stream); and an older
    llama-server reports errors as ``error: {...}``.

    Attributes:
        is_done: the stream said ``[DONE]``; what follows is no part of the answer.
        ignored_lines: that are neither an event nor another part of an event stream.
    """

    def __init__(self) -> None:
        self.is_done = False
        self.ignored_lines = 0
        self._rest = bytearray()
        self._data: list[bytes] = []
        self._data_bytes = 0
        self._is_first = True
        self._is_after_cr = False
        self._is_one_document = False

    def feed(self, piece: bytes) -> Iterator[dict[str, Any]]:
        """Yield the events that are whole with these bytes.

        Raises:
            ValueError: an event is not a JSON object, or is longer than any.
        """
        for line in self._lines(piece):
            event = self._event_at(line)
            if self.is_done:
                return
            if event is not None:
                yield event

    def end(self) -> Iterator[dict[str, Any]]:
        """Yield the event that the end of the stream completes; half an event is none.

        Raises:
            ValueError: a JSON document that is the whole answer is broken.
        """
        if self.is_done:
            return
        if self._rest:
            yield from self.feed(b"\n")
        try:
            event = self._pending()
        except ValueError:
            if self._is_one_document:
                raise
            event = None
        if event is not None:
            yield event

    def _lines(self, piece: bytes) -> Iterator[bytes]:
        start = 1 if self._is_after_cr and piece.startswith(b"\n") else 0
        if piece:
            self._is_after_cr = piece.endswith(b"\r")
        for end in _LINE_END.finditer(piece, start):
            self._rest += piece[start : end.start()]
            line, start = bytes(self._rest), end.end()
            self._rest.clear()
            if self._is_first:
                line, self._is_first = line.removeprefix(_BOM), False
            yield line
        self._rest += piece[start:]
        if len(self._rest) > _LONGEST_EVENT:
            raise ValueError(f"a line of more than {_LONGEST_EVENT} bytes")

    def _event_at(self, line: bytes) -> dict[str, Any] | None:
        if self._is_one_document:
            self._keep(line)
            return None
        if not line:
            return self._pending()
        field, _, value = line.partition(b":")
        if field == b"data":
            # No JSON object goes on after its end, so that of one line needs no blank one.
            event = None if self._data else _object(value)
            if event is None:
                self._keep(value.removeprefix(b" "))
                if len(self._data) == 1 and self._data[0].strip() == _DONE:
                    self.is_done = True
            return event
        if field == b"error" and (error := _object(value)) is not None:
            return {"error": error}
        if field.lstrip().startswith(b"{"):
            event = _object(line)
            if event is None:
                self._data, self._is_one_document = [], True
                self._keep(line)
            return event
        if field not in (b"", b"event", b"id", b"retry") and not _FIELD.match(line):
            self.ignored_lines += 1
        return None

    def _keep(self, data: bytes) -> None:
        self._data.append(data)
        self._data_bytes += len(data) + _LINE_COSTS
        if self._data_bytes > _LONGEST_EVENT:
            raise ValueError(f"an event of more than {_LONGEST_EVENT} bytes")

    def _pending(self) -> dict[str, Any] | None:
        text = b"\n".join(self._data).strip()
        self._data, self._data_bytes = [], 0
        if not text:
            return None
        event = _object(text)
        if event is None:
            raise ValueError(f"not a JSON object: {text[:60]!r}")
        return event


def _object(text: bytes) -> dict[str, Any] | None:
    if not text.lstrip().startswith(b"{"):
        return None
    try:
        content = from_json(text)
    except ValueError:
        try:
            # The standard decodes what is not UTF-8 to U+FFFD.
            content = from_json(text.decode("utf-8", "replace"))
        except ValueError:
            return None
    return content if isinstance(content, dict) else None
