"""Loads as folders on this machine, with what the board's own records say, point by point.

What is known of the server at its start lies in ``service.json``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Self

from armload.analysis.columns import ANY, cores_of
from armload.analysis.energy import read_power
from armload.analysis.load.assessed import cpus_of
from armload.analysis.load.records import Load, LoadPoint, RequestRecord
from armload.analysis.load.request_columns import RequestColumns
from armload.analysis.load.server_metrics import ServerSample
from armload.analysis.load.telemetry import BoardSample, ObservedPoint
from armload.core.files import write_whole
from armload.core.journal import Journal, JournalKind
from armload.core.json_lines import append_lines, write_lines
from armload.core.values import as_json
from armload.core.workspace import loads_folder
from armload.engines.job import Job
from armload.engines.trace import read_trace

SERVICE_FILE = "service.json"


class LoadFolder(Journal[Load, RequestRecord]):
    """A load with its requests, in a file for each point."""

    kind = JournalKind(
        noun="load",
        words=("load",),
        header=Load,
        entry=RequestRecord,
        entries_file="requests-{}.jsonl",
        root=loads_folder,
        make="armload load",
        repair="Run the load again.",
    )

    @classmethod
    def begin_on(cls, load: Load, job: Job | None) -> Self:
        """Make the folder of a load.

        Args:
            job: of the service, as it was started; none where armload does not run it.
        """
        if job is not None:
            write_whole(loads_folder() / load.id / SERVICE_FILE, as_json(job).encode())
        return cls.begin(load)

    @property
    def load(self) -> Load:
        """What was sent to which service."""
        return self.header

    @property
    def is_staged(self) -> bool:
        """Whether its points follow each other without a pause."""
        return any(point.stage is not None for point in self.load.points)

    def each_request(self, point: int) -> Iterator[RequestRecord]:
        """Yield the requests of a point that ended, in the order of their ends."""
        return self.kind.each_line(self.entries_file(point), RequestRecord)

    def requests(self, point: int) -> list[RequestRecord]:
        """Return the whole records of a point, in the order of their schedule."""
        return sorted(self.each_request(point), key=lambda record: record.number)

    def columns(self, point: int) -> RequestColumns:
        """Return what figures need of a point's requests, in the order of their schedule."""
        return RequestColumns(self.each_request(point)).sort()

    def add(self, record: RequestRecord, point: int = -1) -> None:
        """Add a request of a point; it is there even if this program is killed right after.

        Waiting for the disk would delay the requests to come.

        Args:
            point: its number; the last one's without.
        """
        number = len(self.header.points) - 1 if point < 0 else point
        append_lines(self.entries_file(number), [record], is_synced=False)

    def job(self) -> Job | None:
        """Return the service's job, as it was started; none where armload does not run it.

        Raises:
            DataError: it was modified.
        """
        path = self.folder / SERVICE_FILE
        return self.kind.read(path, Job) if path.is_file() else None

    def trace_file(self, point: int) -> Path:
        """Return the file of the server's trace lines; it exists for a service on a board."""
        return self.folder / f"trace-{point}.jsonl"

    def board_file(self, point: int) -> Path:
        """Return the file of what was sampled of the board; it exists for a service on one."""
        return self.folder / f"board-{point}.jsonl"

    def power_file(self, point: int) -> Path:
        """Return the file of a power meter's samples; it exists for a board that has one.

        Stages follow each other without a pause, and share one file.
        """
        return self.folder / f"power-{0 if self.is_staged else point}.jsonl"

    def metrics_file(self, point: int) -> Path:
        """Return the file of the server's own metrics; it exists for a server that gives them."""
        return self.folder / f"metrics-{point}.jsonl"

    def server_samples(self, point: int) -> list[ServerSample]:
        """Return what was scraped of the server."""
        return self.kind.read_lines(self.metrics_file(point), ServerSample)

    def board_samples(self, point: int) -> list[BoardSample]:
        return self.kind.read_lines(self.board_file(point), BoardSample)

    def add_point(self, point: LoadPoint) -> None:
        """Add a point, whose requests follow."""
        self.replace_points((*self.header.points, point))

    def update(self, point: LoadPoint, requests_sha256: str) -> None:
        """Replace the last point by what is known of it now."""
        self.replace_points((*self.header.points[:-1], point), requests_sha256)

    def divide_samples(self, begins_s: Sequence[float]) -> None:
        """Move what was sampled of the board with the first point to the points that it is of.

        Args:
            begins_s: of all points, on the board's monotonic clock.
        """
        samples = self.board_samples(0)
        for number, own in enumerate(_divided([each.at_s for each in samples], begins_s)):
            write_lines(self.board_file(number), samples[own])

    def divide_server_samples(self, begins_s: Sequence[float]) -> None:
        """Do so with what was scraped of the server, if anything was.

        Args:
            begins_s: of all points, on the client's monotonic clock.
        """
        samples = self.server_samples(0)
        for number, own in enumerate(_divided([each.at_client_s for each in samples], begins_s)):
            if samples:
                write_lines(self.metrics_file(number), samples[own])

    def replace_points(self, points: tuple[LoadPoint, ...], requests_sha256: str = "") -> None:
        changed = {"points": points, "requests_sha256": requests_sha256}
        self.rewrite_header(self.header.model_copy(update=changed))


def _divided(times_s: Sequence[float], begins_s: Sequence[float]) -> list[slice]:
    """Return which of the samples, which are in order, are of which point."""
    ends = [*(bisect_left(times_s, begin_s) for begin_s in begins_s[1:]), len(times_s)]
    return [slice(first, end) for first, end in pairwise([0, *ends])]


def observed_points(kept: LoadFolder, job: Job | None) -> list[ObservedPoint]:
    """Return the points of a load, in the order in which they were run.

    Args:
        job: the server's; none where armload does not run it.
    """
    return [_observed(kept, number, job) for number in range(len(kept.load.points))]


def _observed(kept: LoadFolder, number: int, job: Job | None) -> ObservedPoint:
    header, steps = read_trace(kept.trace_file(number))
    point, *later = kept.load.points[number:]
    service = kept.load.service or {}
    slots, context_tokens = service.get("slots"), service.get("context_tokens")
    return ObservedPoint(
        point=point,
        records=kept.columns(number),
        slots=slots if isinstance(slots, int) else None,
        context_tokens=context_tokens if isinstance(context_tokens, int) else None,
        header=header,
        steps=steps,
        samples=tuple(kept.board_samples(number)),
        power=tuple(read_power(kept.power_file(number))),
        next_stage_s=later[0].stage.start_s if later and later[0].stage else None,
        subtracts_idle=kept.load.subtracts_idle,
        server=tuple(kept.server_samples(number)),
        cores=ANY if job is None else cores_of(header, job.before, cpus_of(job)),
        storage_read_bytes_per_s=job.board.storage_read_bytes_per_s if job else None,
    )
