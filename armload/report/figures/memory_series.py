"""Runs of one model by free memory: what was measured, and the curve that they belong to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from armload.analysis.memory_curve import MemoryCurve
from armload.analysis.prediction import READER_SLOWDOWN, STREAMING_OVERHEAD, Rate
from armload.analysis.resident import kv_cache_bytes
from armload.analysis.run import Run
from armload.analysis.storage_share import storage_rate
from armload.analysis.streaming import streamed_weights
from armload.analysis.waiting import Waits, decoding
from armload.engines.engine import MemoryNeed
from armload.engines.model_engine import PROGRAM_BYTES
from armload.engines.weights import BoardMemory
from armload.report.cells import Cell, grouped
from armload.report.figures.figure import legend_line
from armload.report.settings import CACHE, REPACKED, RESIDENT, WEIGHTS

STREAMED, MAPPED = "streamed", "mapped"


@dataclass(frozen=True, kw_only=True)
class Point:
    """A run's median time per token.

    Attributes:
        free_bytes: before the run; where a resident size was requested, what would leave as much.
    """

    run: Run
    mode: str
    free_bytes: int
    token_s: float
    is_requested: bool


@dataclass(frozen=True, kw_only=True)
class Series:
    """Runs that differ in free memory and in how they hold their weights."""

    label: str
    curve: MemoryCurve
    points: tuple[Point, ...]

    @property
    def modes(self) -> list[str]:
        """What has a line: streaming only where it was seen to be possible."""
        is_streamed = any(point.mode == STREAMED for point in self.points)
        return [STREAMED, MAPPED] if is_streamed else [MAPPED]

    def name(self, mode: str) -> str:
        """Return the label of a line."""
        return legend_line(f"{self.label}: {mode}" if self.label else mode)


def series_of(cells: Sequence[Cell]) -> list[Series]:
    """Return a series for each choice of other settings with which a run read from storage."""
    groups = grouped(cells, _series_label).values()
    return [each for each in map(_series, groups) if each]


def _series_label(cell: Cell) -> str:
    return cell.label_without(WEIGHTS, RESIDENT, REPACKED, CACHE)


def _series(group: Sequence[Cell]) -> Series | None:
    runs = [run for cell in group for run in cell.counted if decoding(run)]
    reading = next((run for run in runs if Waits(run=run).is_noticeable), None)
    needs = [need for need in map(_need, sorted(runs, key=_is_told_less)) if need]
    if reading is None or not needs:
        return None
    board, before = reading.board, reading.before
    rate = storage_rate(decoding(reading), board.storage_read_bytes_per_s)
    curve = MemoryCurve(
        need=needs[0],
        compute_s=median(map(_compute_s, runs)),
        storage=Rate(bytes_per_s=round(rate), kind=board.storage_read_rate or "measured"),
        total_bytes=BoardMemory.of(before).total_bytes,
    )
    return Series(
        label=_series_label(group[0]),
        curve=curve,
        points=tuple(_point(run, curve) for run in runs),
    )


def _compute_s(run: Run) -> float:
    """Return the time of a token if nothing had been read."""
    is_streamed = streamed_weights(run.trace) is not None
    slowdown = READER_SLOWDOWN * STREAMING_OVERHEAD.value if is_streamed else 1.0
    return Waits(run=run).computed_s / slowdown


def _is_told_less(run: Run) -> bool:
    weights = streamed_weights(run.trace)
    return weights is None or weights.requested_bytes is not None


def _need(run: Run) -> MemoryNeed | None:
    """Return what a run needs of memory: where its program chose what stays, as it turned out."""
    weights = streamed_weights(run.trace)
    weights_bytes = weights.weights_bytes if weights else run.model.bytes_per_token
    if not weights_bytes:
        return None
    kv_bytes = kv_cache_bytes(run) or 0
    foreseen = run.prediction.memory if run.prediction else None
    program_bytes = foreseen.program_bytes if foreseen else PROGRAM_BYTES
    if weights and weights.requested_bytes is None and weights.resident_bytes < weights_bytes:
        taken = (
            weights.resident_bytes + weights.window_bytes + BoardMemory.of(run.before).reserve_bytes
        )
        program_bytes = max(0, run.before.memory_available_bytes - taken - kv_bytes)
    return MemoryNeed(
        name=run.model.name,
        weights_bytes=run.model.size_bytes or weights_bytes,
        kv_bytes=kv_bytes,
        program_bytes=program_bytes,
        context_tokens=1,
        bytes_per_token=weights_bytes,
    )


def _point(run: Run, curve: MemoryCurve) -> Point:
    weights = streamed_weights(run.trace)
    is_requested = weights is not None and weights.requested_bytes is not None
    free = run.before.memory_available_bytes
    return Point(
        run=run,
        mode=STREAMED if weights else MAPPED,
        free_bytes=curve.free_bytes(weights.held_bytes) if weights and is_requested else free,
        token_s=median(step.duration_s / step.output_tokens for step in decoding(run)),
        is_requested=is_requested,
    )
