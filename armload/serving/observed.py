"""A kept load with what the board's own records say, point by point."""

from __future__ import annotations

from armload.analysis.columns import ANY, cores_of
from armload.analysis.load.assessed import cpus_of
from armload.analysis.load.telemetry import ObservedPoint
from armload.engines.job import Job
from armload.engines.trace import read_trace
from armload.serving.loads import LoadFolder


def observed_points(kept: LoadFolder, job: Job | None) -> list[ObservedPoint]:
    """Return the points of a load, in the order in which they were run.

    Args:
        job: the server's; none where armload does not run it.

    Raises:
        DataError: a record was modified.
    """
    return [_observed(kept, number, job) for number in range(len(kept.load.points))]


def _observed(kept: LoadFolder, number: int, job: Job | None) -> ObservedPoint:
    header, steps = read_trace(kept.trace_file(number))
    slots = (kept.load.service or {}).get("slots")
    return ObservedPoint(
        point=kept.load.points[number],
        records=tuple(kept.requests(number)),
        slots=slots if isinstance(slots, int) else None,
        header=header,
        steps=steps,
        samples=tuple(kept.board_samples(number)),
        cores=ANY if job is None else cores_of(header, job.before, cpus_of(job)),
        storage_read_bytes_per_s=job.board.storage_read_bytes_per_s if job else None,
    )
