"""Memory of a service: what its models take, which of them fit together, and what is too much."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from armload.boards.probe import Probe
from armload.core.values import format_bytes, format_seconds
from armload.engines.engine import MemoryNeed
from armload.engines.server import Serving
from armload.engines.weights import BoardMemory, are_streamed
from armload.services.version import MemoryForecast

_MEMORY_MARGIN, _MEMORY_MORE_BYTES = 1.25, 64 << 20
_MOST_OF_MEMORY = 0.95


def forecast_of(engine: Serving, found: Probe) -> MemoryForecast:
    """Return what a model is expected to take of a board as it was found."""
    need: MemoryNeed = engine.memory
    rate = found.rates.storage_read_bytes_per_s
    return MemoryForecast(
        weights_bytes=need.weights_bytes,
        own_bytes=need.own_bytes,
        is_exact=need.is_exact,
        is_streamed=are_streamed(engine.plan, engine.binary.path, need, found.conditions),
        load_s=need.weights_bytes / rate if rate else None,
    )


class Together(NamedTuple):
    """How many of a service's models are in memory at a time.

    Attributes:
        most_loaded: at most.
        sentence: why, and how long a switch takes; empty for a single model.
    """

    most_loaded: int
    sentence: str


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
    if len(engines) == 1:
        return Together(1, "")
    free_bytes = BoardMemory.of(found.conditions).free_bytes
    needs = sorted((each.all_bytes for each in forecasts), reverse=True)
    fitting = sum(1 for n in range(1, len(needs) + 1) if sum(needs[:n]) <= free_bytes) or 1
    chosen = min(wanted or fitting, len(engines))
    names = " and ".join(each.alias for each in engines)
    said = (
        f"{names} fit into memory together ({format_bytes(sum(needs))} of "
        f"{format_bytes(free_bytes)} free)."
        if fitting == len(engines)
        else f"{names} do not fit into memory together ({format_bytes(sum(needs))}, and "
        f"{format_bytes(free_bytes)} are free): {chosen} at a time."
    )
    if chosen > fitting:
        said += f" With --most-loaded {chosen}, the board may run out of memory."
    if chosen < len(engines):
        said += _switch_words(engines, forecasts)
    return Together(chosen, said)


def _switch_words(engines: Sequence[Serving], forecasts: Sequence[MemoryForecast]) -> str:
    times = [
        f"{format_seconds(forecast.load_s)} for {engine.alias}"
        for engine, forecast in zip(engines, forecasts, strict=True)
        if forecast.load_s is not None
    ]
    if not times:
        return " How long a switch takes is unknown: the storage's rate could not be measured."
    return (
        f" A switch reads the other model from storage: {', '.join(times)}, unless it is still in "
        "the page cache."
    )


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
