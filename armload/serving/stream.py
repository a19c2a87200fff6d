"""The lines of a stream, as events: Server-Sent Events, or bare JSON lines."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from typing import Any

from pydantic_core import from_json

_DONE = b"[DONE]"
_LONGEST_LINE = 1 << 24
"""llm-serving's last event holds all tokens of an answer."""


async def lines_of(pieces: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Yield the lines of a stream that are not empty, as soon as their ends are there.

    Raises:
        ValueError: a line is longer than any event.
    """
    rest = b""
    async for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if line:
                yield line
        if len(rest) > _LONGEST_LINE:
            raise ValueError(f"a line of more than {_LONGEST_LINE} bytes")
    if rest:
        yield rest


_FIELDS = frozenset((b"", b"data", b"error", b"event", b"id", b"retry"))


def is_ignored(line: bytes) -> bool:
    """Say whether a line is neither an event nor another part of an event stream."""
    field = line.strip().partition(b":")[0]
    return field not in _FIELDS and not field.startswith(b"{")


def is_done(line: bytes) -> bool:
    """Say whether a line is the end of an OpenAI stream."""
    field, _, value = line.strip().partition(b":")
    return field == b"data" and value.strip() == _DONE


def event_in(line: bytes) -> dict[str, Any] | None:
    """Return the JSON object in a line; none where it has none.

    ``data: {...}`` holds an event, and so does a line that is a JSON object. Blank lines, comments
    (``: ping``), other fields and ``data: [DONE]`` hold none. An older llama-server reports errors
    as ``error: {...}``.

    Raises:
        ValueError: it should hold one, and does not.
    """
    field, _, value = line.strip().partition(b":")
    if field in (b"data", b"error"):
        text = value.strip()
        if text == _DONE:
            return None
        content = _object(text)
        return {"error": content} if field == b"error" else content
    return _object(line) if field.startswith(b"{") else None


def _object(text: bytes) -> dict[str, Any]:
    content = from_json(text)
    if not isinstance(content, dict):
        raise ValueError(f"not a JSON object: {text[:60]!r}")
    return content
