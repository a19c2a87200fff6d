"""Describing a run that is about to start."""

from __future__ import annotations

import hashlib
import re
import secrets
from datetime import UTC, datetime
from pathlib import PurePosixPath

from armload import __version__
from armload.bench.engine import command
from armload.bench.plan import Plan
from armload.bench.run import BinaryRecord, BoardRecord, Job, ModelRecord, Place
from armload.boards.board import Board
from armload.boards.probe import Probe
from armload.build.binary import Binary
from armload.core.errors import UsageError
from armload.models.model import Model

FILE_NAME = "job.json"
"""The job lies under this name in the run's folder, on the board and on the laptop."""


def asked_for(plan: Plan, binary: Binary, model: Model) -> str:
    """Return a checksum over what decides a run, wherever it runs."""
    parts = (plan.model_dump_json(), binary.sha256, model.sha256)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def check_threads(plan: Plan, board: Board, cores: int) -> None:
    """Check that a board has a core for every thread.

    Raises:
        UsageError: it has fewer.
    """
    if plan.threads is not None and plan.threads > cores:
        raise UsageError(
            f"{plan.threads} threads were asked for, and {board.name} has {cores} cores: "
            "more threads than cores only wait for each other.",
            f"Say --threads {cores} or less.",
        )


def new_job(
    plan: Plan,
    *,
    board: Board,
    probe: Probe,
    binary: Binary,
    model: Model,
    on_board: PurePosixPath,
    model_on_board: PurePosixPath,
    launcher: tuple[str, ...] = (),
    place: Place | None = None,
) -> Job:
    """Describe a run of ``plan`` that starts now.

    Raises:
        UsageError: the plan does not suit the model or the board.
    """
    check_threads(plan, board, probe.cores)
    words = command(
        plan,
        model,
        binary.path,
        on_board=on_board,
        model_on_board=model_on_board,
        memory_available_bytes=probe.conditions.memory_available_bytes,
    )
    now = datetime.now(UTC)
    stem = re.sub(r"[^A-Za-z0-9._-]+", "_", model.path.stem)
    return Job(
        id=f"{now:%Y%m%dT%H%M%SZ}-{board.name}-{stem}-{secrets.token_hex(2)}",
        asked_for=asked_for(plan, binary, model),
        place=place,
        started_utc=now.isoformat(timespec="seconds"),
        armload=__version__,
        plan=plan,
        command=(*launcher, *words),
        board=BoardRecord(
            name=board.name,
            target=board.target,
            description=board.description,
            cpu_features=probe.cpu_features,
            cores=probe.cores,
            storage_read_bytes_per_s=board.facts.storage_read_bytes_per_s,
            memory_bytes_per_s=board.facts.memory_bytes_per_s,
        ),
        binary=BinaryRecord(
            **binary.model_dump(include=set(BinaryRecord.model_fields) - {"features"}),
            features=tuple(use.feature for use in binary.features if not use.guarded),
        ),
        model=ModelRecord(
            name=model.name,
            **model.model_dump(include=set(ModelRecord.model_fields) - {"name"}),
        ),
        before=probe.conditions,
    )
