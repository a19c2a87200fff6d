"""Finding the run of a point of a sweep among the runs of this machine."""

from __future__ import annotations

import contextlib
import json
from datetime import datetime, timedelta

from armload.core.errors import ArmloadError
from armload.core.ids import begun
from armload.core.workspace import runs_folder
from armload.deploy.layout import JOB_FILE
from armload.engines.job import SweepPoint
from armload.runs import store
from armload.runs.folders import run_folders
from armload.runs.selection import RunSelection

_CLOCKS_DIFFER = timedelta(minutes=10)
"""Of two machines; ids of runs and of sweeps may come from either."""


def earliest_run(sweep: str) -> datetime | None:
    """Return since when a sweep may have runs; none where its id does not tell."""
    since = begun(sweep)
    return since and since - _CLOCKS_DIFFER


class SweptRuns:
    """What one board has done of sweeps before this is made; it is read once for each sweep.

    Args:
        board: the board's name.
    """

    def __init__(self, board: str) -> None:
        self._board = board
        self._runs: dict[str, dict[tuple[SweepPoint, str], str]] = {}

    def find(self, place: SweepPoint, fingerprint: str) -> str:
        """Return the id of an engine's run; empty if there is none, or it was stopped."""
        run = self._of(place.sweep).get((place, fingerprint), "")
        with contextlib.suppress(ArmloadError):
            if run and store.load(runs_folder() / run).exit.kind != "stopped":
                return run
        return ""

    def points(self, sweep: str) -> list[SweepPoint]:
        """Return the points of a sweep whose runs are there."""
        return [place for place, fingerprint in self._of(sweep) if self.find(place, fingerprint)]

    def _of(self, sweep: str) -> dict[tuple[SweepPoint, str], str]:
        if sweep not in self._runs:
            selection = RunSelection(boards=[self._board], since=earliest_run(sweep))
            found = []
            for folder in run_folders(selection):
                # A job is read in a hundredth of the time that the run with all its tokens takes.
                with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
                    job = json.loads((folder / JOB_FILE).read_bytes())
                    if job["place"]["sweep"] == sweep:
                        place = SweepPoint.model_validate(job["place"])
                        found.append(((place, job["fingerprint"]), folder.name))
            self._runs[sweep] = dict(found)
        return self._runs[sweep]
