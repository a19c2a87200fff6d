"""The list of engines; a further one is a line here."""

from __future__ import annotations

from armload.core.errors import DataError
from armload.engines.completion import Completion
from armload.engines.distributed import DistributedRun, DistributedWorker
from armload.engines.embedding import Embedding
from armload.engines.engine import Engine
from armload.engines.importance import Importance
from armload.engines.perception import Perception
from armload.engines.quantise import Quantising
from armload.engines.rpc_server import RpcServer
from armload.engines.scorer import Scoring
from armload.engines.server import Serving
from armload.engines.speculation import Speculation
from armload.engines.watched.asked import AskedProgram
from armload.engines.watched.engine import WatchedProgram

ENGINES: tuple[type[Engine], ...] = (
    *(Completion, Speculation, Scoring, Serving, Quantising, Importance, WatchedProgram),
    *(AskedProgram, RpcServer, DistributedRun, DistributedWorker, Perception, Embedding),
)

RESULTS = tuple(name for engine in ENGINES for name in engine.results)
"""Files that an engine's result may be."""


def engine_called(name: str) -> type[Engine]:
    """Return the engine that a job names."""
    for engine in ENGINES:
        if engine.name == name:
            return engine
    known = ", ".join(engine.name for engine in ENGINES)
    raise DataError(
        f"This armload has no engine {name!r}; known engines: {known}.",
        "That run was made by a newer armload: update this one.",
    )
