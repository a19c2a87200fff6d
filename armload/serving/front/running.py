"""A front on a local port, beside the program's own work."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager

from aiohttp import web
from aiohttp.http import HttpProcessingError

from armload.boards.forward import LOOPBACK, listening_on
from armload.serving.front.app import Front

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

    Raises:
        UsageError: the port is taken.
        ConnectError: no port can be opened here.
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
