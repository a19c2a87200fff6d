"""llm-serving's paths, answered by a llama-server, on a local port."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING

import aiohttp
from aiohttp import web
from aiohttp.http import HttpProcessingError
from pydantic import ValidationError

from armload.boards.forward import LOOPBACK, listening_on
from armload.core.values import load_json
from armload.serving.front.llm_serving import (
    PREDICT_FAILED,
    PROMPT_EMPTY,
    PROMPT_TOO_LONG,
    DataForm,
    FrontAnswer,
    FrontedModel,
    FrontRequest,
    json_line,
    sse,
    state,
)
from armload.serving.stream import EventStream

if TYPE_CHECKING:
    from typing import Any


_MODEL_PATH = "/models/llama2"
_LONGEST_LINE = 1 << 22
_GAUGE = re.compile(r"^llamacpp:(requests_processing|requests_deferred) (\d+)", re.MULTILINE)
_STREAM_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",
}
_TOO_LONG_TYPE = "exceed_context_size_error"


class Front:
    """Answers in llm-serving's protocol.

    Args:
        url, api_key: of the llama-server.
        model: that it serves.
        form: of ``data`` in the events of a stream.
    """

    def __init__(self, *, url: str, api_key: str, model: FrontedModel, form: DataForm) -> None:
        self._url = url
        self._headers = {"Authorization": f"Bearer {api_key}"}
        self._model = model
        self._form = form
        self._session: aiohttp.ClientSession | None = None

    def app(self) -> web.Application:
        """Return the application, which connects to the server while it runs."""
        app = web.Application()
        app.cleanup_ctx.append(self._connected)
        app.router.add_post(_MODEL_PATH, self._either)
        app.router.add_post(f"{_MODEL_PATH}/generate", self._asked(self._whole))
        app.router.add_post(f"{_MODEL_PATH}/generate_stream", self._asked(self._streamed))
        app.router.add_post("/tokenize", self._tokens)
        app.router.add_get("/serving/get_bs", self._batch_size)
        app.router.add_get("/serving/get_request_numbers", self._queue_size)
        app.router.add_get("/serving/get_serverd_model_info", self._info)
        return app

    async def _connected(self, _: web.Application) -> AsyncIterator[None]:
        async with aiohttp.ClientSession(
            self._url,
            headers=self._headers,
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=None),
            read_bufsize=_LONGEST_LINE,
        ) as self._session:
            yield

    @property
    def _server(self) -> aiohttp.ClientSession:
        assert self._session is not None  # noqa: S101 - no request is taken before
        return self._session

    def _asked(
        self, answer: Callable[[web.Request, FrontRequest], Awaitable[web.StreamResponse]]
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handle(request: web.Request) -> web.StreamResponse:
            try:
                body = await request.read()
            except web.RequestPayloadError as error:
                raise web.HTTPBadRequest(text=str(error)) from error
            try:
                asked = FrontRequest.model_validate_json(body)
            except ValidationError as error:
                # Not the input: JSON cannot hold all that a body can.
                detail = error.errors(include_url=False, include_context=False, include_input=False)
                return web.json_response({"detail": detail}, status=HTTPStatus.UNPROCESSABLE_ENTITY)
            try:
                return await answer(request, asked)
            except aiohttp.ClientError as error:
                raise web.HTTPBadGateway(text=f"The model's server: {error}") from error

        return handle

    async def _either(self, request: web.Request) -> web.StreamResponse:
        async def answer(request: web.Request, asked: FrontRequest) -> web.StreamResponse:
            return await (self._streamed if asked.stream else self._whole)(request, asked)

        return await self._asked(answer)(request)

    async def _streamed(self, request: web.Request, asked: FrontRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers=_STREAM_HEADERS)
        try:
            async for line in self._lines(FrontAnswer(request=asked, form=self._form)):
                if not response.prepared:
                    await response.prepare(request)
                if line:
                    await response.write(line)
        except aiohttp.ClientError:
            if not response.prepared:
                raise
            if request.transport is not None:  # an orderly end would be taken for a whole answer
                request.transport.abort()
        return response

    async def _whole(self, _: web.Request, asked: FrontRequest) -> web.StreamResponse:
        answer = FrontAnswer(request=asked, form=self._form)
        async for _line in self._lines(answer):
            pass
        return web.Response(body=json_line(answer.whole()), content_type="application/json")

    async def _lines(self, answer: FrontAnswer) -> AsyncIterator[bytes]:
        """Yield an empty line when a slot takes the request, and then those of the answer.

        Raises:
            aiohttp.ClientError: the server cannot be reached, or hung up.
            web.HTTPException: it refused the request.
        """
        if not answer.request.inputs:
            for line in [*answer.fail(PROMPT_EMPTY, "The prompt has no tokens."), *answer.last()]:
                yield line
            return
        body = answer.request.for_llama_server()
        async with self._server.post("/completion", json=body) as response:
            if response.status != HTTPStatus.OK:
                error = _error(await response.text())
                if error.get("type") != _TOO_LONG_TYPE:
                    raise web.HTTPBadGateway(text=str(error.get("message", error)))
                lines = list(answer.fail(PROMPT_TOO_LONG, str(error.get("message", ""))))
            else:
                lines = [b""]
            for line in lines:
                yield line
            if response.status == HTTPStatus.OK:
                async for event in _events(response):
                    if "error" in event:
                        answered = list(answer.fail(PREDICT_FAILED, str(event["error"])))
                    else:
                        answered = list(answer.take(event))
                    for line in answered:
                        yield line
        for line in answer.last():
            yield line

    async def _tokens(self, request: web.Request) -> web.Response:
        """Count as the model does: the project's data has limits that are texts."""
        try:
            body = await request.read()
            async with self._server.post(
                "/tokenize", data=body, headers={"Content-Type": "application/json"}
            ) as response:
                return web.Response(
                    body=await response.read(),
                    status=response.status,
                    content_type="application/json",
                )
        except web.RequestPayloadError as error:
            raise web.HTTPBadRequest(text=str(error)) from error
        except aiohttp.ClientError as error:
            raise web.HTTPBadGateway(text=f"The model's server: {error}") from error

    async def _batch_size(self, _: web.Request) -> web.Response:
        return _event(state((await self._gauges())["requests_processing"]))

    async def _queue_size(self, _: web.Request) -> web.Response:
        return _event(state((await self._gauges())["requests_deferred"]))

    async def _info(self, _: web.Request) -> web.Response:
        gauges = await self._gauges()
        return _event(self._model.info(requests=sum(gauges.values())))

    async def _gauges(self) -> dict[str, int]:
        async with self._server.get("/metrics") as response:
            if response.status != HTTPStatus.OK:
                raise web.HTTPBadGateway(text=await response.text())
            return {name: int(count) for name, count in _GAUGE.findall(await response.text())}


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[dict[str, Any]]:
    stream = EventStream()
    async for piece in response.content.iter_any():
        for event in stream.feed(piece):
            yield event


def _error(text: str) -> dict[str, Any]:
    try:
        error = load_json(text)["error"]
    except (ValueError, LookupError, TypeError):
        return {"message": text}
    return error if isinstance(error, dict) else {"message": str(error)}


def _event(content: object) -> web.Response:
    return web.Response(body=sse(content), headers=_STREAM_HEADERS)


_STOPS_WITHIN_S = 1.0


class _NoFaultOfClients(logging.Filter):
    """Drops what a client is told anyway: its request is no HTTP."""

    def filter(self, record: logging.LogRecord) -> bool:
        fault = record.exc_info[1] if record.exc_info else None
        return not isinstance(fault, (HttpProcessingError, web.RequestPayloadError))


_LOGGER = logging.getLogger(__name__)
_LOGGER.addFilter(_NoFaultOfClients())


@contextmanager
def fronted(front: Front, port: int, board_name: str) -> Iterator[str]:
    """Answer on a local port while the block runs, and yield the address.

    Args:
        port: 0 for a free one.
    """
    with closing(listening_on(port, board_name)) as listener:
        runner = web.AppRunner(
            front.app(),
            handler_cancellation=True,
            access_log=None,
            logger=_LOGGER,
            auto_decompress=False,  # as that server, which reads bodies as they are
            shutdown_timeout=_STOPS_WITHIN_S,
        )
        begun: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        thread = threading.Thread(
            target=lambda: asyncio.run(_answer(runner, listener, begun)), name="front"
        )
        thread.start()
        loop, stop = begun.result()
        try:
            yield f"http://{LOOPBACK}:{listener.getsockname()[1]}"
        finally:
            loop.call_soon_threadsafe(stop.set)
            thread.join()


async def _answer(
    runner: web.AppRunner,
    listener: socket.socket,
    begun: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]],
) -> None:
    stop = asyncio.Event()
    try:
        await runner.setup()
        await web.SockSite(runner, listener).start()
        begun.set_result((asyncio.get_running_loop(), stop))
        await stop.wait()
    finally:
        await runner.cleanup()
