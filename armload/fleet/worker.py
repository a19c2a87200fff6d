"""A gateway as a Dask worker: it offers its boards until it is stopped."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import uuid4

from armload import __version__
from armload.core.progress import Progress
from armload.fleet.events import ProgressEvent, Send
from armload.fleet.gateway import Gateway, offer
from armload.fleet.offers import VERSION, resources_of
from armload.fleet.scheduler import (
    ANSWER_S,
    SchedulerAddress,
    check_answers,
    need_dask,
    not_dask,
    scheduler_address,
    security_of,
)

if TYPE_CHECKING:
    from distributed import Worker

_SPARE_THREADS = 32
"""For files and connections while every board is busy; each client of a service waits in one."""

_AGAIN_S = 1.0
_LOOPBACK = "127.0.0.1"


def serve_boards(scheduler: str, boards: Sequence[str], progress: Progress) -> None:
    """Offer boards to the commands of a scheduler, and come back to it whenever it was away."""
    address = scheduler_address(scheduler)
    need_dask()
    security_of(address, "worker")
    check_answers(address)
    gateway = Gateway(boards, progress)
    offer(gateway)
    import dask

    settings = {
        # The profiler looks at all threads' frames; Python before 3.11.5 may hang in them for ever.
        "distributed.worker.profile.enabled": False,
        # Dask's HTTP server starts in any case, without encryption: it shows nothing.
        "distributed.worker.http.routes": [],
        # A command accepts nothing that expands.
        "distributed.comm.compression": False,
    }
    with dask.config.set(settings):
        asyncio.run(_serve(address, gateway, progress))


async def _serve(address: SchedulerAddress, gateway: Gateway, progress: Progress) -> None:
    is_known = False
    while True:
        worker = _worker(address, gateway)
        try:
            async with asyncio.timeout(ANSWER_S):
                await worker
        except Exception as error:
            with suppress(Exception):
                await worker.close(timeout=1)
            if not is_known:
                raise not_dask(address, error) from error
            await asyncio.sleep(_AGAIN_S)
            continue
        is_known = True
        progress.say(f"Offering {', '.join(gateway.boards)} to {address.url}.")
        gateway.connected(_sender(worker))
        try:
            await worker.finished()
        finally:
            with suppress(Exception):
                await worker.close(timeout=1)
        progress.say(f"The scheduler at {address.url} does not answer. Waiting for it.")


def _worker(address: SchedulerAddress, gateway: Gateway) -> Worker:
    from distributed import Worker

    async def version(_: Worker) -> str:
        return __version__

    return Worker(
        address.url,
        # Two of the same name are refused, and one that is lost may seem to be there for a while.
        name=f"{socket.gethostname()}/{uuid4().hex[:8]}",
        nthreads=len(gateway.boards) + _SPARE_THREADS,
        resources=resources_of(gateway.boards),
        security=security_of(address, "worker"),
        startup_information={VERSION: version},
        memory_limit=0,
        host=_LOOPBACK if address.is_loopback else None,
        dashboard_address=f"{_LOOPBACK}:0",
    )


def _sender(worker: Worker) -> Send:
    def send(topic: str, event: ProgressEvent) -> None:
        worker.log_event(topic, event.model_dump_json(exclude_defaults=True))

    return send
