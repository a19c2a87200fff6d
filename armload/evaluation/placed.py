"""The runs on this machine that answered an evaluation, or a list of items."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from armload.core.errors import ArmloadError
from armload.core.workspace import runs_folder
from armload.engines.job import Place
from armload.runs.assemble import FILE_NAME, read_job


def placed_runs(sweep: str, *, since: str = "") -> Iterator[tuple[Path, Place]]:
    """Return the folders of the runs with that id in their place, the oldest first.

    Args:
        since: the beginning of a run's name; older runs are not looked at.
    """
    try:
        names = sorted(path.name for path in runs_folder().iterdir() if path.name >= since)
    except OSError:
        return
    for folder in (runs_folder() / name for name in names):
        try:
            # Most runs belong to something else, and a job takes long to read.
            if sweep.encode() not in (folder / FILE_NAME).read_bytes():
                continue
            place = read_job(folder).place
        except (OSError, ArmloadError):
            continue
        if place is not None and place.sweep == sweep:
            yield folder, place
