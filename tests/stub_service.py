"""A service that answers with delays and faults as told: what a client measures is known."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from aiohttp import web

from armload.serving.dialects.dialect import CompletionRequest
from armload.serving.dialects.registry import dialect_named
from armload.serving.target import LoadTarget

METRICS = """# HELP llamacpp:tokens_predicted_total Number of generation tokens processed.
# TYPE llamacpp:tokens_predicted_total counter
llamacpp:tokens_predicted_total 480
# HELP llamacpp:requests_processing Number of requests processing.
# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing {busy}
# HELP llamacpp:requests_deferred Number of requests deferred.
# TYPE llamacpp:requests_deferred gauge
llamacpp:requests_deferred {waiting}
"""
WORDS = ("once", "upon", "a", "time", "there", "was")


@dataclass(kw_only=True)
class Behaviour:
    """What a service does with a request.

    Attributes:
        header_s, first_s, gap_s: delays before the header, the first token after it, each other.
        tokens: of an answer; none: as many as were asked for.
        api_key: that it wants.
        status: that it answers with, after ``answered`` requests.
        stuck_after: requests after which none is answered any more.
        cut_after: tokens after which it drops the connection.
        error_after: tokens after which it reports an error in the stream.
        says: why, where the status is an error.
        has_tokenizer: whether it counts tokens: each word is one.
        data_in_list: how llm-serving writes an event.
        thoughts, thoughts_key: how many tokens of a chat's answer are thoughts, and their key.
        garbage: lines that are written into the stream before each token.
        ends: how an OpenAI stream ends: with a reason and usage, or with ``[DONE]`` alone.
        slots: requests that it answers at a time; the others wait before their header.
        pieces: of the text of an answer, a token each; empty for words of its own.
        calls: the tool that each piece of a chat's answer calls, or adds to the call of.
        dimensions: of an embedding.
        context: words, of which a prompt must be shorter; none for any.
        cached: tokens of each prompt that OpenAI's usage says were cached; none: it does not say.
        notices: that a client has gone, and ends its answer.
        metrics: what ``/metrics`` answers with; ``{busy}`` and ``{waiting}`` stand for its
            requests, ``{came}`` for the number of those that came.
        metrics_status: of that.
        metrics_s: how long that takes.
    """

    header_s: float = 0.0
    first_s: float = 0.0
    gap_s: float = 0.0
    tokens: int | None = None
    api_key: str = ""
    status: int = 200
    answered: int = 0
    stuck_after: int | None = None
    cut_after: int | None = None
    error_after: int | None = None
    says: str = "as told"
    has_tokenizer: bool = True
    data_in_list: bool = True
    thoughts: int = 0
    thoughts_key: str = "reasoning_content"
    garbage: bytes = b""
    ends: Literal["reason", "done"] = "reason"
    slots: int = 10_000
    pieces: tuple[str, ...] = ()
    calls: str = ""
    dimensions: int = 8
    context: int | None = None
    cached: int | None = None
    notices: bool = True
    metrics: str = METRICS
    metrics_status: int = 200
    metrics_s: float = 0.0


@dataclass(kw_only=True)
class StubService:
    """A running service.

    Attributes:
        url: of it.
        seen: the path and the ``Authorization`` of whatever came.
        bodies: of the requests that came, with their paths.
        behaviour: may be changed while it runs.
        busy, waiting: requests in a slot, and for one, as it tells them.
        left: clients that were noticed to have hung up before the end of an answer.
    """

    url: str = ""
    seen: list[tuple[str, str | None]] = field(default_factory=list)
    bodies: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    behaviour: Behaviour = field(default_factory=Behaviour)
    busy: int = 0
    waiting: int = 0
    left: int = 0
    free: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(10_000))

    async def answer(self, request: web.Request) -> web.StreamResponse:
        how, path = self.behaviour, request.path
        self.seen.append((path, request.headers.get("Authorization")))
        body = await request.json() if request.can_read_body else {}
        if how.api_key and request.headers.get("Authorization") != f"Bearer {how.api_key}":
            return web.json_response({"error": {"message": "Invalid API Key"}}, status=401)
        if path == "/v1/models":
            return web.json_response({"data": [{"id": "stub"}]})
        if path == "/metrics":
            await asyncio.sleep(how.metrics_s)
            known = {"busy": self.busy, "waiting": self.waiting, "came": len(self.bodies)}
            text = re.sub(r"{(\w+)}", lambda match: str(known[match[1]]), how.metrics)
            return web.Response(text=text, status=how.metrics_status)
        if path == "/tokenize" and how.has_tokenizer:
            words = str(body["content"]).split()
            pieces = [{"id": number, "piece": f" {word}"} for number, word in enumerate(words)]
            return web.json_response({"tokens": pieces})
        self.bodies.append((path, body))
        if path not in (*_STREAMS, "/v1/embeddings"):
            return web.json_response({"error": {"message": "File Not Found"}}, status=404)
        if how.status != 200 and len(self.bodies) > how.answered:
            return web.json_response({"error": {"message": how.says}}, status=how.status)
        if how.context is not None and len(json.dumps(body).split()) >= how.context:
            says = "request (99 tokens) exceeds the available context size (64 tokens)"
            return web.json_response({"error": {"message": says}}, status=400)
        if how.stuck_after is not None and len(self.bodies) > how.stuck_after:
            await asyncio.sleep(600)
        async with self.free:
            self.busy += 1
            try:
                if path == "/v1/embeddings":
                    return await self._embedding(how, body)
                return await self._stream(request, how, body)
            finally:
                self.busy -= 1

    async def _embedding(self, how: Behaviour, body: dict[str, Any]) -> web.Response:
        await asyncio.sleep(how.first_s)
        usage = {"prompt_tokens": len(body["input"].split())}
        item = {"embedding": [0.5] * how.dimensions, "index": 0}
        return web.json_response({"data": [item], "usage": usage}, dumps=_indented)

    async def _stream(
        self, request: web.Request, how: Behaviour, body: dict[str, Any]
    ) -> web.StreamResponse:
        event, end = _STREAMS[request.path]
        limit = body.get("n_predict") or body.get("max_tokens")
        limit = limit or body["parameters"]["max_new_tokens"]
        count = limit if how.tokens is None else min(limit, how.tokens)
        if how.pieces:
            count = min(limit, len(how.pieces))
        await asyncio.sleep(how.header_s)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        try:
            await response.prepare(request)
        except ConnectionError:
            self.left += 1
            return response
        for number in range(count):
            await asyncio.sleep(how.gap_s if number else how.first_s)
            if number == how.cut_after:
                assert request.transport is not None
                request.transport.abort()
                return response
            if number == how.error_after:
                await response.write(b'data: {"error": {"message": "out of cells"}}\n\n')
                return response
            try:
                await response.write(how.garbage + event(how, number + 1))
            except ConnectionError:
                if how.notices:
                    self.left += 1
                    return response
        await response.write(end(how, count, _prompt_tokens(body)))
        return response


def _prompt_tokens(body: dict[str, Any]) -> int:
    texts = [body.get("prompt", ""), *(each["content"] for each in body.get("messages", ()))]
    return max(7, sum(len(str(text).split()) for text in texts))


def _indented(content: object) -> str:
    return json.dumps(content, indent=1)


def _piece(how: Behaviour, number: int) -> str:
    return how.pieces[number - 1] if how.pieces else text_of(number)


def text_of(number: int) -> str:
    return f" {WORDS[(number - 1) % len(WORDS)]}"


def answer_of(count: int) -> str:
    return "".join(text_of(number + 1) for number in range(count))


def _line(content: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(content).encode() + b"\n\n"


def _llama(how: Behaviour, number: int) -> bytes:
    return _line({"content": _piece(how, number), "stop": False, "tokens_predicted": number})


def _llama_end(how: Behaviour, count: int, prompt: int) -> bytes:
    timings = {"prompt_n": 5, "cache_n": 2, "prompt_ms": 1.5, "predicted_n": count}
    last = {"content": "", "stop": True, "stop_type": "limit", "tokens_predicted": count}
    return _line({**last, "tokens_evaluated": prompt, "timings": {**timings, "predicted_ms": 2.5}})


def _usage(how: Behaviour, count: int, prompt: int) -> bytes:
    usage: dict[str, Any] = {"prompt_tokens": prompt, "completion_tokens": count}
    if how.cached is not None:
        usage["prompt_tokens_details"] = {"cached_tokens": how.cached}
    return _line({"choices": [], "usage": usage}) + b"data: [DONE]\n\n"


def _openai(how: Behaviour, number: int) -> bytes:
    return _line({"choices": [{"text": _piece(how, number), "finish_reason": None}]})


def _openai_end(how: Behaviour, count: int, prompt: int) -> bytes:
    reason = _line({"choices": [{"text": "", "finish_reason": "length"}]}) + _usage(
        how, count, prompt
    )
    return reason if how.ends == "reason" else b"data: [DONE]\n\n"


def _chat(how: Behaviour, number: int) -> bytes:
    piece = _piece(how, number)
    delta: dict[str, Any] = {how.thoughts_key if number <= how.thoughts else "content": piece}
    if how.calls:
        function = {"arguments": piece, **({"name": how.calls} if number == 1 else {})}
        delta = {"tool_calls": [{"index": 0, "function": function}]}
    begin = _line({"choices": [{"delta": {"role": "assistant", "content": None}}]})
    return (begin if number == 1 else b"") + _line({"choices": [{"delta": delta}]})


def _chat_end(how: Behaviour, count: int, prompt: int) -> bytes:
    reason = _line({"choices": [{"delta": {}, "finish_reason": "length"}]}) + _usage(
        how, count, prompt
    )
    return reason if how.ends == "reason" else b"data: [DONE]\n\n"


def _serving_line(how: Behaviour, item: dict[str, Any]) -> bytes:
    data = [item] if how.data_in_list else item
    event = {"event": "message", "retry": 30000, "data": data}
    return json.dumps(event).encode() + b"\n"


def _serving(how: Behaviour, number: int) -> bytes:
    token = {"id": number, "logprob": 0.0, "special": False, "text": text_of(number)}
    item = {"details": None, "generated_text": token["text"], "tokens": token, "top_tokens": []}
    return _serving_line(how, item)


def _serving_end(how: Behaviour, count: int, _prompt: int) -> bytes:
    item = {"generated_text": answer_of(count), "finish_reason": "length", "tokens": []}
    return _serving_line(how, {**item, "generated_tokens": count})


_STREAMS = {
    "/completion": (_llama, _llama_end),
    "/v1/completions": (_openai, _openai_end),
    "/v1/chat/completions": (_chat, _chat_end),
    "/models/llama2/generate_stream": (_serving, _serving_end),
}


ASK = CompletionRequest(prompt="Once upon", max_tokens=4)


def target(url: str, dialect: str = "llama-server", **known: Any) -> LoadTarget:
    """Return a service at an address as what a load is put on."""
    return LoadTarget(
        url=url, dialect=dialect_named(dialect), **({"api_key": "", "model": "stub"} | known)
    )


@contextmanager
def stub_service(**behaviour: Any) -> Iterator[StubService]:
    """Run a service in a thread of this process."""
    service = StubService(behaviour=Behaviour(**behaviour))
    service.free = asyncio.Semaphore(service.behaviour.slots)
    loop = asyncio.new_event_loop()
    runner = web.AppRunner(_application(service), shutdown_timeout=0.1)
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        port = asyncio.run_coroutine_threadsafe(_listen(runner), loop).result(30)
        service.url = f"http://127.0.0.1:{port}"
        yield service
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def _application(service: StubService) -> web.Application:
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", service.answer)
    return application


async def _listen(runner: web.AppRunner) -> int:
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, backlog=1024)
    await site.start()
    port: int = runner.addresses[0][1]
    return port
