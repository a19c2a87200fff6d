"""The lines of a stream, as events: Server-Sent Events, or bare JSON lines."""

from __future__ import annotations

import json
from typing import Any


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
        if text == b"[DONE]":
            return None
        content = _object(text)
        return {"error": content} if field == b"error" else content
    return _object(line) if field.startswith(b"{") else None


def _object(text: bytes) -> dict[str, Any]:
    content = json.loads(text)
    if not isinstance(content, dict):
        raise ValueError(f"not a JSON object: {text[:60]!r}")
    return content
