"""Loads as folders on this machine: ``loads/<id>/load.json`` beside the requests and the trace.

What is known of the server at its start lies in ``service.json``.

A line is appended to the file of requests whenever one ends, so what an interrupted load has
measured is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from armload.analysis.load.records import Load, LoadPoint, RequestRecord
from armload.core.errors import DataError
from armload.core.files import write_whole
from armload.core.results import Results
from armload.core.validation_messages import explain_mistake
from armload.core.values import as_json, parse_json
from armload.core.workspace import loads_folder
from armload.engines.job import Job

LOAD_FILE = "load.json"
SERVICE_FILE = "service.json"
LOADS = Results(
    noun="load",
    word="load",
    file=LOAD_FILE,
    newest_format=1,
    root=loads_folder,
    make="armload load",
    repair="Run the load again.",
)


class RequestFile:
    """Where the records of one point's requests are appended."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab")

    def add(self, record: RequestRecord) -> None:
        """Append a record; it is there even if this program is killed right after."""
        self._file.write(record.model_dump_json(exclude_defaults=True).encode() + b"\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class KeptLoad:
    """A load's folder.

    Attributes:
        folder: where it lies.
        load: what was sent to which service.
    """

    def __init__(self, folder: Path, load: Load) -> None:
        self.folder = folder
        self.load = load

    def requests(self, point: int) -> list[RequestRecord]:
        """Return the requests of a point that ended, in the order of their schedule.

        A last line that a crash cut off is left out.

        Raises:
            DataError: a line is no record.
        """
        path = self.requests_file(point)
        if not path.is_file():
            return []
        *lines, _cut = path.read_bytes().split(b"\n")
        try:
            records = [RequestRecord.model_validate_json(line) for line in lines]
        except ValidationError as error:
            raise DataError(
                f"{path}: this is not a valid record of requests: "
                f"{explain_mistake(error, RequestRecord)}.",
                "The file was modified. Run the load again.",
            ) from error
        return sorted(records, key=lambda record: record.number)

    def requests_file(self, point: int) -> Path:
        """Return the file of a point's requests."""
        return self.folder / f"requests-{point}.jsonl"

    def job(self) -> Job | None:
        """Return the service's job, as it was started; none where armload does not run it.

        Raises:
            DataError: it was modified.
        """
        path = self.folder / SERVICE_FILE
        if not path.is_file():
            return None
        try:
            return Job.model_validate(parse_json(path.read_bytes()))
        except ValueError as error:
            raise DataError(
                f"{path}: this is not a valid record of a service: {explain_mistake(error, Job)}.",
                "The file was modified. Run the load again.",
            ) from error

    def trace_file(self, point: int) -> Path:
        """Return the file of the server's trace lines; it exists for a service on a board."""
        return self.folder / f"trace-{point}.jsonl"

    def board_file(self, point: int) -> Path:
        """Return the file of what was sampled of the board; it exists for a service on one."""
        return self.folder / f"board-{point}.jsonl"

    @contextmanager
    def recording(self, point: LoadPoint) -> Iterator[RequestFile]:
        """Add a point, and open the file of its requests."""
        number = len(self.load.points)
        self._write((*self.load.points, point))
        file = RequestFile(self.requests_file(number))
        try:
            yield file
        finally:
            file.close()

    def update(self, point: LoadPoint, requests_sha256: str) -> None:
        """Replace the last point by what is known of it now."""
        self._write((*self.load.points[:-1], point), requests_sha256)

    def _write(self, points: tuple[LoadPoint, ...], requests_sha256: str = "") -> None:
        changed = {"points": points, "requests_sha256": requests_sha256}
        self.load = self.load.model_copy(update=changed)
        write_whole(self.folder / LOAD_FILE, as_json(self.load).encode())


def begin(load: Load, job: Job | None = None) -> KeptLoad:
    """Make the folder of a load.

    Args:
        job: of the service, as it was started; none where armload does not run it.
    """
    folder = loads_folder() / load.id
    if job is not None:
        write_whole(folder / SERVICE_FILE, as_json(job).encode())
    write_whole(folder / LOAD_FILE, as_json(load).encode())
    return KeptLoad(folder, load)


def find_load(reference: str) -> KeptLoad:
    """Return the load that a person means.

    Raises:
        UsageError, DataError, DiskError: as for ``Results.find`` and ``read_load``.
    """
    return read_load(LOADS.find(reference))


def read_load(folder: Path) -> KeptLoad:
    """Read a load's folder.

    Raises:
        DataError: ``load.json`` was changed, or is of a newer format.
        DiskError: it cannot be read.
    """
    return KeptLoad(folder, LOADS.read(folder / LOAD_FILE, Load))
