"""The events of a stream, however the network cuts it into pieces."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from armload.serving import stream
from armload.serving.stream import EventStream

ENDS = (("\n", "\r\n"), ("\r\n",), ("\r",))
"""Of lines that may follow each other: after CR, LF would be part of the same end."""

TEXTS = st.text(max_size=12)
OBJECTS = st.dictionaries(TEXTS, st.one_of(TEXTS, st.integers(), st.none()), max_size=3)
OTHER_LINES = st.sampled_from(
    (": ping", ":", "event: message", "event", "id: 7", "retry: 30", "data", "data:", "other: x")
)


def read(pieces: list[bytes]) -> tuple[list[dict[str, Any]], EventStream]:
    found = EventStream()
    events: list[dict[str, Any]] = []
    for piece in pieces:
        events += found.feed(piece)
    return [*events, *found.end()], found


def cut(content: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({0, len(content), *(place % (len(content) + 1) for place in places)})
    return [content[begin:end] for begin, end in pairwise(ends)]


def of_the_standard(content: bytes) -> list[str]:
    """Interpret an event stream as HTML's standard does (9.2.6), step by step."""
    text = content.decode("utf-8", "replace").removeprefix("\ufeff")
    *lines, _unfinished = re.split("\r\n|\n|\r", text)
    events, data = [], ""
    for line in lines:
        if line == "":
            if data:
                events.append(data.removesuffix("\n"))
            data = ""
        elif not line.startswith(":"):
            field, _, value = line.partition(":")
            if field == "data":
                data += value.removeprefix(" ") + "\n"
    return events


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    lines: list[str] = []
    for content in draw(st.lists(OBJECTS, max_size=4)):
        lines += draw(st.lists(OTHER_LINES, max_size=2))
        written = json.dumps(content, ensure_ascii=draw(st.booleans()), indent=1)
        # JSON escapes the ends of lines, so that these are where it was laid out.
        laid_out = written.split("\n") if draw(st.booleans()) else [json.dumps(content)]
        lines += [f"data:{draw(st.sampled_from(('', ' ')))}{line}" for line in laid_out]
        lines += ["", *draw(st.lists(OTHER_LINES, max_size=2)), ""]
    bom, ends = draw(st.sampled_from(("", "\ufeff"))), st.sampled_from(draw(st.sampled_from(ENDS)))
    return (bom + "".join(line + draw(ends) for line in lines)).encode()


@given(streams(), st.lists(st.integers(min_value=0), max_size=12))
def test_events_are_those_of_the_standard_wherever_a_stream_is_cut(
    content: bytes, places: list[int]
) -> None:
    expected = [json.loads(each) for each in of_the_standard(content) if each.strip()]
    events, found = read(cut(content, places))
    assert events == expected
    assert found.ignored_lines == 0


@given(st.binary(max_size=200), st.lists(st.integers(min_value=0), max_size=12))
def test_any_bytes_give_the_same_events_or_refusal_wherever_they_are_cut(
    content: bytes, places: list[int]
) -> None:
    def outcome(pieces: list[bytes]) -> object:
        try:
            events, found = read(pieces)
        except ValueError as error:
            return str(error)
        return events, found.is_done, found.ignored_lines

    assert outcome(cut(content, places)) == outcome([content])


def test_single_bytes_give_the_events_of_a_whole_stream() -> None:
    content = b'\xef\xbb\xbfdata: {"a":\r\ndata: 1}\r\n\r\n: ping\rdata: {"b": 2}\r\rdata: [DONE]'
    events, found = read([content[place : place + 1] for place in range(len(content))])
    assert (events, found.is_done) == ([{"a": 1}, {"b": 2}], True)


@pytest.mark.parametrize(
    ("content", "events"),
    [
        (b'data: {"a": 1}\ndata: {"b": 2}\n', [{"a": 1}, {"b": 2}]),
        (b'data: {"a": 1}', [{"a": 1}]),
        (b'data: {"a": 1}\n\ndata: {"b": ', [{"a": 1}]),
        (b'{"a": 1}\n{"b": 2}\n', [{"a": 1}, {"b": 2}]),
        (b'{\n "a": {\n  "b": 1\n }\n}\n', [{"a": {"b": 1}}]),
        (b'error: {"message": "full"}\n\n', [{"error": {"message": "full"}}]),
        (b'data: {"a": 1}\n\ndata: [DONE]\n\ndata: {"b": 2}\n\n', [{"a": 1}]),
        (b'data: {"a": "\xff"}\n\n', [{"a": "\ufffd"}]),
        (b"data:\n\ndata: \n\n: only comments\n\n", []),
        (b"", []),
    ],
)
def test_what_services_send_beside_the_standard_is_read(
    content: bytes, events: list[dict[str, Any]]
) -> None:
    assert read([content])[0] == events


def test_lines_that_are_no_part_of_an_event_stream_are_counted() -> None:
    content = b'<p>wait</p>\nrequest 1 of 2\nretry: 5\nx-field: 1\ndata: {"a": 1}\n\n'
    events, found = read([content])
    assert (events, found.ignored_lines) == ([{"a": 1}], 2)


@pytest.mark.parametrize(
    "content",
    [
        b"data: [1]\n\n",
        b"data: 5\n\n",
        b"data: wait\n\n",
        b'{"a": \n1',
        b'data: {"a": "\\ud83d"}\n\n',  # half a character, which no record could hold
        b"data: " + b'{"a":' * 1000 + b"1" + b"}" * 1000 + b"\n\n",
        b'data: {"a": ' + b"9" * 5000 + b"}\n\n",
    ],
)
def test_what_is_no_event_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match="not a JSON object"):
        read([content])


def test_what_does_not_end_is_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "_LONGEST_EVENT", 200)
    assert read([b": " + b"x" * 150, b"y" * 40 + b"\n"])[0] == []
    with pytest.raises(ValueError, match="a line of more than 200 bytes"):
        read([b"x" * 150, b"y" * 51])
    with pytest.raises(ValueError, match="an event of more than 200 bytes"):
        read([b"data: [\n"] * 5)
