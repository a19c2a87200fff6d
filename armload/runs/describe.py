"""Describing a run that is about to start."""

from __future__ import annotations

import os
from datetime import UTC, datetime

from armload import __version__
from armload.boards.board import Board, Facts, RealReach
from armload.boards.probe import Probe
from armload.boards.rates import Rates
from armload.core.files import file_name_of
from armload.core.ids import new_id
from armload.engines.engine import Engine, Site
from armload.engines.job import BoardRecord, Job, Place, Workstation
from armload.engines.prediction import Prediction

FILE_NAME = "job.json"
"""The job lies under this name in the run's folder, on the board and on this machine."""


def board_record(board: Board, probe: Probe) -> BoardRecord:
    """Return what a run keeps of its board."""
    return BoardRecord(
        name=board.name,
        target=board.target,
        description=board.description,
        cpu_features=probe.cpu_features,
        cores=probe.cores,
        workstation=None if isinstance(board.reach, RealReach) else _workstation(),
        **_rates(board.facts, probe.rates),
    )


def _workstation() -> Workstation:
    return Workstation(cores=os.cpu_count() or 1, load=os.getloadavg()[0])


def new_job(
    engine: Engine,
    board: Board,
    site: Site,
    place: Place | None = None,
    *,
    prediction: Prediction | None = None,
) -> Job:
    """Describe a run that starts now.

    Args:
        site: the same board, ready for it.
        prediction: what is expected of it.

    Raises:
        UsageError: the engine's arguments do not suit the board.
    """
    subject = engine.subject
    now = datetime.now(UTC)
    stem = subject.model.name.removesuffix(".gguf") or subject.binary.program
    return Job(
        **dict(subject),
        id=new_id(now, board.name, file_name_of(stem)),
        fingerprint=engine.fingerprint,
        place=place,
        started_utc=now.isoformat(timespec="seconds"),
        armload=__version__,
        engine_name=engine.name,
        command=engine.command(site),
        environment=dict(engine.environment(site)),
        board=board_record(board, site.found),
        before=site.found.conditions,
        prediction=prediction,
    )


def _rates(declared: Facts, measured: Rates) -> dict[str, object]:
    rates: dict[str, object] = {}
    for field, kind in (
        ("storage_read_bytes_per_s", "storage_read_rate"),
        ("memory_bytes_per_s", "memory_rate"),
    ):
        found, stated = getattr(measured, field), getattr(declared, field)
        rates[field] = found or stated
        rates[kind] = "measured" if found else "declared" if stated else None
    return rates
