"""A kept load with what the board's own records say, point by point."""

from __future__ import annotations

from pathlib import Path

from armload.analysis.columns import ANY, cores_of
from armload.analysis.load.assessed import cpus_of
from armload.analysis.load.telemetry import BoardSample, ObservedPoint
from armload.core.errors import DataError
from armload.core.validation_messages import explain_mistake
from armload.core.values import parse_json
from armload.engines.job import Job
from armload.engines.trace import read_trace
from armload.serving.loads import KeptLoad


def observed_points(kept: KeptLoad, job: Job | None) -> list[ObservedPoint]:
    """Return the points of a load, in the order in which they were run.

    Args:
        job: the server's; none where armload does not run it.

    Raises:
        DataError: a record was modified.
    """
    return [_observed(kept, number, job) for number in range(len(kept.load.points))]


def _observed(kept: KeptLoad, number: int, job: Job | None) -> ObservedPoint:
    header, steps = read_trace(kept.trace_file(number))
    slots = (kept.load.service or {}).get("slots")
    return ObservedPoint(
        point=kept.load.points[number],
        records=tuple(kept.requests(number)),
        slots=slots if isinstance(slots, int) else None,
        header=header,
        steps=steps,
        samples=tuple(_samples(kept.board_file(number))),
        cores=ANY if job is None else cores_of(header, job.before, cpus_of(job)),
        storage_read_bytes_per_s=job.board.storage_read_bytes_per_s if job else None,
    )


def _samples(path: Path) -> list[BoardSample]:
    """Return what was sampled; a last line that a crash cut off is left out."""
    if not path.is_file():
        return []
    *lines, _cut = path.read_bytes().split(b"\n")
    try:
        return [BoardSample.model_validate(parse_json(line)) for line in lines]
    except ValueError as error:
        raise DataError(
            f"{path}: this is not a valid record of a board: "
            f"{explain_mistake(error, BoardSample)}.",
            "The file was modified. Run the load again.",
        ) from error
