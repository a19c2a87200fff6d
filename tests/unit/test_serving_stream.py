"""The lines of a stream, and the events in them, however the network cuts it into pieces."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from armload.serving import stream
from armload.serving.stream import event_in, lines_of

STREAM = b'data: {"content": "a"}\n\ndata: {"content": "b"}\r\n\r\n: ping\ndata: [DONE]'


def lines(pieces: list[bytes]) -> list[bytes]:
    async def arrive() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    async def read() -> list[bytes]:
        return [line async for line in lines_of(arrive())]

    return asyncio.run(read())


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_lines_are_whole_however_a_stream_is_cut(size: int) -> None:
    pieces = [STREAM[start : start + size] for start in range(0, len(STREAM), size)]
    events = [event_in(line) for line in lines(pieces)]
    assert [event for event in events if event] == [{"content": "a"}, {"content": "b"}]
    assert lines(pieces)[-1] == b"data: [DONE]"


def test_a_line_that_does_not_end_is_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "_LONGEST_LINE", 20)
    assert lines([b"x" * 15, b"y" * 5 + b"\n"]) == [b"x" * 15 + b"y" * 5]
    with pytest.raises(ValueError, match="a line of more than 20 bytes"):
        lines([b"x" * 15, b"y" * 6])


def test_half_a_character_is_no_event_since_no_record_could_hold_it() -> None:
    assert event_in(b'data: {"content": "\\ud83d\\ude00"}') == {"content": "\U0001f600"}
    with pytest.raises(ValueError, match="hex escape"):
        event_in(b'data: {"content": "\\ud83d"}')
