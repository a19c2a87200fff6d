"""Memory of a service: what its models take, which of them fit together, and what is too much."""

from __future__ import annotations

from collections.abc import Sequence

from armload.analysis.together import HeldModel, Together, held_together
from armload.boards.probe import Probe
from armload.engines.engine import MemoryNeed
from armload.engines.prediction import Prediction
from armload.engines.server import Serving
from armload.engines.weights import BoardMemory, are_streamed
from armload.services.version import MemoryForecast

_MEMORY_MARGIN, _MEMORY_MORE_BYTES = 1.25, 64 << 20
_MOST_OF_MEMORY = 0.95


def forecast_of(
    engine: Serving, found: Probe, prediction: Prediction | None = None
) -> MemoryForecast:
    """Return what a model is expected to take of a board as it was found.

    Args:
        prediction: of a request; where there is none, loading is reading the file.
    """
    need: MemoryNeed = engine.memory
    rate = found.rates.storage_read_bytes_per_s
    load_s = need.weights_bytes / rate if rate else None
    if prediction is not None and prediction.load_s is not None:
        load_s = prediction.load_s.value
    return MemoryForecast(
        weights_bytes=need.weights_bytes,
        own_bytes=need.own_bytes,
        is_exact=need.is_exact,
        is_streamed=are_streamed(engine.plan, engine.binary.path, need, found.conditions),
        load_s=load_s,
    )


def together(
    engines: Sequence[Serving],
    forecasts: Sequence[MemoryForecast],
    found: Probe,
    wanted: int | None,
) -> Together:
    """Choose how many models are in memory at a time.

    Args:
        wanted: by the person; none for what fits.
    """
    models = [
        HeldModel(engine.alias, forecast.all_bytes, forecast.load_s)
        for engine, forecast in zip(engines, forecasts, strict=True)
    ]
    return held_together(models, BoardMemory.of(found.conditions).free_bytes, wanted)


def memory_limit_bytes(forecasts: Sequence[MemoryForecast], most_loaded: int, found: Probe) -> int:
    """Return the anonymous memory beyond which a service has gone wrong.

    It is what the largest models that are loaded together are expected to take, with a margin;
    weights count because repacking and streaming copy them.
    """
    needs = sorted((each.all_bytes for each in forecasts), reverse=True)[:most_loaded]
    wanted = int(_MEMORY_MARGIN * sum(needs)) + _MEMORY_MORE_BYTES
    if any(each.is_streamed for each in forecasts):
        wanted = found.conditions.memory_total_bytes
    return min(wanted, int(_MOST_OF_MEMORY * found.conditions.memory_total_bytes))
