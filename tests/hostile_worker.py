"""A gateway that attacks the commands which use it, on a scheduler that is honest.

    python -m tests.hostile_worker SCHEDULER MARKER

It offers the board ``one``. The last argument of a call names the attack, see ``ATTACKS``.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from distributed import Worker, get_worker

from armload import __version__
from armload.fleet import gateway
from armload.fleet.messages import TaskAnswer, reply_of
from armload.fleet.offers import VERSION, resources_of
from tests.hostile_scheduler import HOSTILE, Payload, PayloadError


def raised(error: BaseException) -> Any:
    raise error


def with_cause(marker: str) -> Any:
    raise RuntimeError("outside") from PayloadError(marker)


def with_context(marker: str) -> Any:
    try:
        raise PayloadError(marker)
    except PayloadError:
        raise RuntimeError("outside")  # noqa: B904 - the context is meant


def with_group(marker: str) -> Any:
    raise ExceptionGroup("several", [ValueError(1), PayloadError(marker)])


def with_note(marker: str) -> Any:
    error = ValueError("noted")
    error.__dict__["kept"] = Payload(marker)
    raise error


def logged(topic: str, content: Any) -> Any:
    get_worker().log_event(topic, content)
    return reply_of(TaskAnswer(result="fine"))


def warned(marker: str) -> Any:
    evil = pickle.dumps(Payload(marker))
    return logged("warn", {"message": evil, "category": evil})


def told(marker: str) -> Any:
    get_worker().batched_stream.send(
        {"op": "task-erred", "key": "x", "exception": pickle.dumps(Payload(marker))}
    )
    return reply_of(TaskAnswer(result="fine"))


def array(marker: str) -> Any:
    made = np.empty(1, dtype=object)
    made[0] = Payload(marker)
    return made


ATTACKS: Mapping[str, Callable[[str], Any]] = {
    "raises": lambda marker: raised(PayloadError(marker)),
    "raises an argument": lambda marker: raised(ValueError(Payload(marker))),
    "raises from": with_cause,
    "raises while": with_context,
    "raises a group": with_group,
    "raises with an attribute": with_note,
    "raises no Exception": lambda marker: raised(asyncio.CancelledError(Payload(marker))),
    "returns": Payload,
    "returns an error": PayloadError,
    "returns bytes": lambda marker: pickle.dumps(Payload(marker)),
    "returns a list": lambda marker: [1, [Payload(marker)]],
    "returns a dict": lambda marker: {"a": Payload(marker)},
    "returns a set": lambda marker: {1, 2},
    "returns an array": array,
    "returns a text": lambda marker: "text",
    "returns nothing": lambda marker: None,
    "returns 100 MB": lambda marker: bytes(100 << 20),
    "returns bad JSON": lambda marker: b"[" * 100_000,
    "returns another JSON": lambda marker: b'{"result": {"a": 1}}\n',
    "logs": lambda marker: logged("armload-x", Payload(marker)),
    "logs bytes": lambda marker: logged("armload-x", pickle.dumps(Payload(marker))),
    "prints": lambda marker: logged("print", {"args": ("\x1b[2Jprinted",)}),
    "prints a payload": lambda marker: logged("print", {"args": (Payload(marker),)}),
    "warns": warned,
    "tells": told,
}


def main(scheduler: str, marker: str) -> None:
    async def version(_: Worker) -> str:
        return __version__

    async def serve() -> None:
        worker = Worker(
            scheduler,
            name="hall/1",
            resources=resources_of(["one"]),
            startup_information={VERSION: version},
            dashboard_address="127.0.0.1:0",
            host="127.0.0.1",
        )
        async with worker:
            sys.stdout.write("offering\n")
            sys.stdout.flush()
            await worker.finished()

    def answer(_call: str, *words: Any) -> Any:
        return ATTACKS[str(words[-1])](marker)

    def do_task(_task: str) -> Any:
        return raised(PayloadError(marker))

    for function in (answer, do_task):
        setattr(gateway, function.__name__, function)
    asyncio.run(serve())


if __name__ == "__main__":
    os.environ[HOSTILE] = "1"
    main(*sys.argv[1:])
