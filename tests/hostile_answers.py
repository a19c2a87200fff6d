"""Answers with habits of real and of hostile services, drawn by a seed."""

from __future__ import annotations

import asyncio
import gzip
import json
import math
import random
import resource
import time
import zlib
from dataclasses import dataclass
from typing import Any

from armload.analysis.load.latency import severity
from armload.analysis.load.metrics import metrics_of
from armload.analysis.load.records import LoadPoint, Objectives, RequestRecord
from armload.serving.client import Client
from armload.serving.connections import connected
from armload.serving.dialects.dialect import CompletionRequest
from armload.serving.dialects.registry import dialect_named
from tests.raw_service import Piece, raw_service

EASY = Objectives(ttft_s=100.0, tpot_s=100.0, e2e_s=100.0)
TOKENS = 8
WORDS = 40
TIMEOUT_S = 4.0
HANGS_AFTER_S = 20.0
MOST_RSS_BYTES = 1 << 30
_GAP_S = 0.04

_LEGAL = (
    *("plain", "null error", "role first", "empty choices", "thoughts", "comments", "bom", "cr"),
    *("crlf", "lines", "fields", "no blank", "no done", "split", "chunked", "late done"),
)
_BAD = (
    *("empty", "whole", "whole indented", "together", "short", "absurd usage", "absurd prompt"),
    *("prompt cut", "cut", "error event", "status", "redirect", "gzip", "gzip bomb"),
    *("deflate bomb", "deep", "digits", "long line", "long event", "long header"),
    *("many headers", "endless"),
    *("endless error", "continues", "trickle", "no http", "bad chunks", "bad length", "garbage"),
    *("other json", "surrogate", "many calls", "silent", "reset", "nothing", "noise", "abort"),
)  # fmt: skip
HABITS = (*_LEGAL, *_BAD)
_COUNTS: tuple[object, ...] = (
    *(10**12, -3, 800, "8", "many", math.nan, math.inf, -math.inf, True, False, 7.5, 10**300),
    *([], {}, [8], -0.5, 1e308, 0),
)


@dataclass(frozen=True, kw_only=True)
class HostileAnswer:
    """One try.

    Attributes:
        habit: of the service.
        is_legal: the answer is whole, as asked for, and observed.
        pieces, repeats: as ``raw_service`` takes them.
    """

    habit: str
    is_legal: bool
    dialect: str
    pieces: tuple[Piece, ...]
    repeats: bool = False

    @property
    def request(self) -> CompletionRequest:
        return CompletionRequest(
            prompt=" ".join(["word"] * WORDS), max_tokens=TOKENS, ignores_end=True
        )


def hostile_answer(seed: int) -> HostileAnswer:
    """Draw one; the first seeds have each habit once."""
    draw = random.Random(seed)
    habit = HABITS[seed] if seed < len(HABITS) else draw.choice(HABITS)
    dialect = draw.choice(("openai", "openai-chat"))
    pieces = _Pieces(draw, dialect, habit).made()
    return HostileAnswer(
        habit=habit,
        is_legal=habit in _LEGAL,
        dialect=dialect,
        pieces=tuple(pieces),
        repeats=habit in ("endless", "endless error", "continues"),
    )


class _Pieces:
    def __init__(self, draw: random.Random, dialect: str, habit: str) -> None:
        self._draw, self._is_chat, self._habit = draw, dialect == "openai-chat", habit
        self._end = draw.choice(("\n", "\r\n", "\r"))
        if habit in ("cr", "crlf"):
            self._end = {"cr": "\r", "crlf": "\r\n"}[habit]

    def made(self) -> list[Piece]:
        of_habit = getattr(self, "_" + self._habit.replace(" ", "_"), None)
        found: list[Piece] = of_habit() if of_habit else self._stream(self._events())
        return found

    def _chunk(self, text: str | None, reason: str | None = None, **more: Any) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": 0, "finish_reason": reason}
        if self._is_chat:
            choice["delta"] = {} if text is None else {"content": text}
        else:
            choice["text"] = text or ""
        return {"id": "x", "object": "chunk", "choices": [choice], **more}

    def _usage(self, generated: object = TOKENS, prompt: object = WORDS + 5) -> dict[str, Any]:
        return {"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": generated}}

    def _events(self, count: int = TOKENS, **usage: object) -> list[dict[str, Any]]:
        more = {"error": None} if self._habit == "null error" else {}
        chunks = [self._chunk(f" t{number}", **more) for number in range(count)]
        if self._habit == "thoughts" and self._is_chat:
            key = self._draw.choice(("reasoning", "reasoning_content"))
            chunks[0] = {"choices": [{"delta": {key: " t0", "content": None}}]}
        begin = []
        if self._habit == "role first" and self._is_chat:
            begin = [{"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}]
        if self._habit == "empty choices":
            begin = [{"choices": [], "prompt_filter_results": []}]
        reason = self._draw.choice(("length", "stop", "eos"))
        return [*begin, *chunks, self._chunk(None, reason, **more), self._usage(**usage)]

    def _event(self, content: dict[str, Any]) -> bytes:
        text = json.dumps(content)
        lines = text.split("\n")
        if self._habit == "lines":
            lines = json.dumps(content, indent=1).split("\n")
        found = [f"data: {line}" for line in lines]
        if self._habit == "fields":
            found = ["event: message", "id: 4", *found, "retry: 10", "x-other: 1"]
        if self._habit == "comments":
            found = [": ping", *found, ":"]
        blank = [] if self._habit == "no blank" else [""]
        return "".join(line + self._end for line in [*found, *blank]).encode()

    def _head(self, status: str = "200 OK", more: str = "") -> bytes:
        kind = self._draw.choice(("text/event-stream", "text/event-stream; charset=utf-8"))
        return f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n{more}\r\n".encode()

    def _stream(self, events: list[dict[str, Any]], *, gap_s: float = _GAP_S) -> list[Piece]:
        parts = [self._event(each) for each in events]
        if self._habit == "bom":
            parts[0] = b"\xef\xbb\xbf" + parts[0]
        if self._habit != "no done":
            parts.append(f"data: [DONE]{self._end}{self._end}".encode())
        if self._habit == "chunked":
            parts = [b"%x\r\n%s\r\n" % (len(part), part) for part in parts] + [b"0\r\n\r\n"]
            found: list[Piece] = [self._head(more="Transfer-Encoding: chunked\r\n")]
        else:
            found = [self._head()]
        for part in parts:
            cut = self._draw.randrange(len(part)) if self._habit == "split" else 0
            if cut:
                found += [part[:cut], 0.005]
            found += [part[cut:], gap_s]
        if self._habit == "late done":
            found.append(6.0)
        return found

    def _empty(self) -> list[Piece]:
        return self._stream([self._chunk("", "stop"), self._usage(0)])

    def _whole(self) -> list[Piece]:
        choice: dict[str, Any] = {"index": 0, "finish_reason": "length", "text": "all of it"}
        if self._is_chat:
            choice["message"] = {"role": "assistant", "content": choice.pop("text")}
        content = {**self._usage(), "choices": [choice]}
        indent = 1 if self._habit == "whole indented" else None
        head = self._head().replace(b"text/event-stream", b"application/json")
        return [head, 0.05, json.dumps(content, indent=indent).encode()]

    _whole_indented = _whole

    def _together(self) -> list[Piece]:
        head, *others = self._stream(self._events())
        return [head, 0.1, b"".join(each for each in others if isinstance(each, bytes))]

    def _short(self) -> list[Piece]:
        count = self._draw.randrange(1, TOKENS - 1)
        return self._stream(self._events(count, generated=count))

    def _absurd_usage(self) -> list[Piece]:
        return self._stream(self._events(generated=self._draw.choice(_COUNTS)))

    def _absurd_prompt(self) -> list[Piece]:
        counts = [each for each in _COUNTS if each != 800]
        return self._stream(self._events(prompt=self._draw.choice(counts)))

    def _prompt_cut(self) -> list[Piece]:
        return self._stream(self._events(prompt=self._draw.randrange(1, WORDS // 2)))

    def _cut(self) -> list[Piece]:
        return self._stream(self._events())[: self._draw.randrange(3, 2 * TOKENS)]

    def _error_event(self) -> list[Piece]:
        errors = ({"error": "e"}, {"error": {"message": "\x1b[2J"}}, {"object": "error"})
        place = self._draw.randrange(TOKENS)
        return self._stream([*self._events()[:place], self._draw.choice(errors)])

    def _status(self) -> list[Piece]:
        status = self._draw.choice((400, 401, 404, 413, 422, 429, 500, 502, 503, 599))
        body = self._draw.choice((b"", b"no", b'{"error": 5}', b'{"detail": []}', b"\xff\xfe\x00"))
        return [self._head(f"{status} No"), body]

    def _redirect(self) -> list[Piece]:
        places = ("http://[", "//other:1/x", "", "http://a\x80b/", "file:///etc/passwd", "x" * 7000)
        place = self._draw.choice(places)
        status = self._draw.choice((301, 302, 303, 307, 308, 300, 304))
        return [self._head(f"{status} Go", f"Location: {place}\r\n")]

    def _gzip(self) -> list[Piece]:
        body = b"".join(self._event(each) for each in self._events())
        return [self._head(more="Content-Encoding: gzip\r\n"), gzip.compress(body)]

    def _gzip_bomb(self) -> list[Piece]:
        return [self._head(more="Content-Encoding: gzip\r\n"), gzip.compress(bytes(1 << 25))]

    def _deflate_bomb(self) -> list[Piece]:
        return [self._head(more="Content-Encoding: deflate\r\n"), zlib.compress(bytes(1 << 25))]

    def _deep(self) -> list[Piece]:
        opening, closing = self._draw.choice(((b'{"a":', b"}"), (b'{"choices":[', b"]}")))
        depth = self._draw.choice((300, 100_000))
        return [self._head(), b"data: " + opening * depth + b"1" + closing * depth + b"\n\n"]

    def _digits(self) -> list[Piece]:
        number = b"9" * self._draw.choice((400, 5000, 100_000))
        body = b'data: {"choices": [], "usage": {"completion_tokens": %s}}\n\n' % number
        return [self._head(), body]

    def _long_line(self) -> list[Piece]:
        return [self._head(), b"data: {", *[b'"a": 1, ' * (1 << 17)] * 20]

    def _long_event(self) -> list[Piece]:
        return [self._head(), *[b"data: [\n" * (1 << 14)] * 40]

    def _long_header(self) -> list[Piece]:
        return [b"HTTP/1.1 200 OK\r\nX: " + b"y" * (1 << 20)]

    def _many_headers(self) -> list[Piece]:
        return [b"HTTP/1.1 200 OK\r\n", *[b"X: y\r\n" * 10_000] * 10, b"\r\n"]

    def _endless(self) -> list[Piece]:
        piece = self._draw.choice((b": wait\n", self._event(self._chunk(" x")), b"\n", b"z"))
        return [self._head(), piece * 2000]

    def _endless_error(self) -> list[Piece]:
        return [self._head("400 No"), b"because " * 2000]

    def _continues(self) -> list[Piece]:
        return [b"HTTP/1.1 100 Continue\r\n\r\n" * self._draw.choice((1, 1000))]

    def _trickle(self) -> list[Piece]:
        content = self._head() + self._event(self._chunk(" x")) * 50
        found: list[Piece] = []
        for place in range(0, len(content), 3):
            found += [content[place : place + 3], 0.05]
        return found

    def _no_http(self) -> list[Piece]:
        return [self._draw.choice((b"220 smtp\r\n", b"\x16\x03\x01\x02", b"HTTP/9.9 what\r\n\r\n"))]

    def _bad_chunks(self) -> list[Piece]:
        size = self._draw.choice((b"zz", b"-1", b"ffffffffffffffffff", b"8" * 5000))
        return [self._head(more="Transfer-Encoding: chunked\r\n"), size + b"\r\nabc\r\n"]

    def _bad_length(self) -> list[Piece]:
        length = self._draw.choice(("-5", "1e9", "99999999999999999999", "100000", "0"))
        return [self._head(more=f"Content-Length: {length}\r\n"), self._event(self._chunk(" x"))]

    def _garbage(self) -> list[Piece]:
        return [self._head(), *[self._draw.randbytes(self._draw.randrange(1, 500))] * 5]

    def _other_json(self) -> list[Piece]:
        values: tuple[Any, ...] = (
            None,
            5,
            "x",
            [],
            {},
            [None],
            [5],
            [{}],
            {"choices": [{"delta": [[]]}]},
            True,
        )
        keys = ("choices", "usage", "error", "timings", "object", "data")
        found = [
            {each: self._draw.choice(values) for each in self._draw.sample(keys, 3)}
            for _ in range(6)
        ]
        return self._stream(found, gap_s=0.0)

    def _surrogate(self) -> list[Piece]:
        return [self._head(), b'data: {"choices": [{"text": "\\ud83d"}]}\n\ndata: [DONE]\n\n']

    def _many_calls(self) -> list[Piece]:
        calls = [{"index": n, "function": {"name": "f"}} for n in range(5000)]
        return [self._head(), self._event({"choices": [{"delta": {"tool_calls": calls}}]})]

    def _silent(self) -> list[Piece]:
        return [*self._draw.choice(([], [self._head()])), 30.0]

    def _reset(self) -> list[Piece]:
        return [self._head(), self._event(self._chunk(" x"))]

    def _nothing(self) -> list[Piece]:
        return []

    def _noise(self) -> list[Piece]:
        found = self._stream(self._events())
        found.insert(4, b"<html>wait</html>\r\n")
        return found

    def _abort(self) -> list[Piece]:
        reason = self._draw.choice(("abort", "error"))
        return self._stream([*self._events()[:TOKENS], self._chunk(None, reason), self._usage()])


async def _sent(answer: HostileAnswer, url: str) -> RequestRecord:
    async with connected("") as session:
        client = Client(session, url, dialect_named(answer.dialect), "m", TIMEOUT_S)
        return await client.send(answer.request, number=0, scheduled_s=0.0)


def faults_of(answer: HostileAnswer) -> list[str]:
    """Let the client take an answer, and return what it did wrong."""
    began_s, before_bytes = time.monotonic(), _peak_bytes()
    try:
        with raw_service(*answer.pieces, repeats=answer.repeats) as service:
            record = asyncio.run(_sent(answer, service.url))
        took_s = time.monotonic() - began_s
        record = RequestRecord.model_validate_json(record.model_dump_json())
        point = LoadPoint(rate=1.0, requests=1, started_utc="", began_client_s=0.0)
        found = metrics_of(point, [record], EASY)
        found.model_dump_json()
    except Exception as error:  # noqa: BLE001 - that is what is looked for
        return [f"raised {error!r}"]
    doubts = {each.kind for each in found.findings} - {"client late"}
    is_right = not doubts and severity(record, EASY) <= 1
    faults = []
    if took_s > HANGS_AFTER_S:
        faults.append(f"hung for {took_s:.0f} s")
    if is_right and not answer.is_legal:
        faults.append(f"wrong presented as right: {record}")
    if answer.is_legal:
        expected = "".join(f" t{number}" for number in range(TOKENS))
        if (record.outcome, record.text) != ("ok", expected):
            faults.append(f"legal but refused: {record.outcome} {record.error}")
        elif not is_right:
            faults.append(f"legal but doubted: {doubts}, {record.chunks}")
    if _peak_bytes() > max(before_bytes, MOST_RSS_BYTES):  # other tests may have taken more
        faults.append("took more than 1 GB of memory")
    return faults


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
