"""Describing a run that is about to start."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from datetime import UTC, datetime
from pathlib import PurePosixPath

from armload import __version__
from armload.bench.cpu_set import cpu_numbers
from armload.bench.engine import command
from armload.bench.plan import Plan
from armload.bench.record import BinaryRecord, BoardRecord, Job, Laptop, ModelRecord, Place
from armload.boards.board import Board, Facts, RealReach
from armload.boards.probe import Probe
from armload.boards.rates import Rates
from armload.build.binary import Binary
from armload.core.errors import UsageError
from armload.models.model import Model

FILE_NAME = "job.json"
"""The job lies under this name in the run's folder, on the board and on the laptop."""


def asked_for(plan: Plan, binary: Binary, model: Model) -> str:
    """Return a checksum over what decides a run, wherever it runs."""
    parts = (plan.model_dump_json(), binary.sha256, model.sha256)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def new_id(now: datetime, board_name: str, stem: str) -> str:
    """Return a name for a run that no other has, with when, where and what in it."""
    what = re.sub(r"[^A-Za-z0-9._-]+", "_", stem)
    return f"{now:%Y%m%dT%H%M%SZ}-{board_name}-{what}-{secrets.token_hex(2)}"


def board_record(board: Board, probe: Probe) -> BoardRecord:
    """Return what a run keeps of its board."""
    return BoardRecord(
        name=board.name,
        target=board.target,
        description=board.description,
        cpu_features=probe.cpu_features,
        cores=probe.cores,
        laptop=None if isinstance(board.reach, RealReach) else _laptop(),
        **_rates(board.facts, probe.rates),
    )


def _laptop() -> Laptop:
    return Laptop(cores=os.cpu_count() or 1, load=os.getloadavg()[0])


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

    Args:
        plan: what to run.
        board: where.
        probe: what the board is, and what was measured of it.
        binary: the program.
        model: its model.
        on_board: where the program lies.
        model_on_board: where the model lies.
        launcher: words that go before the program.
        place: of the run in a sweep.

    Raises:
        UsageError: the plan does not suit the model or the board.
    """
    check_cores(plan, board, probe)
    words = command(
        plan,
        model,
        binary.path,
        on_board=on_board,
        model_on_board=model_on_board,
        memory_available_bytes=probe.conditions.memory_available_bytes,
    )
    now = datetime.now(UTC)
    return Job(
        id=new_id(now, board.name, model.path.stem),
        asked_for=asked_for(plan, binary, model),
        place=place,
        started_utc=now.isoformat(timespec="seconds"),
        armload=__version__,
        plan=plan,
        command=(*launcher, *words),
        board=board_record(board, probe),
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


def check_cores(plan: Plan, board: Board, probe: Probe) -> None:
    """Refuse a plan that asks for cores which a board does not have, or for too many threads.

    Raises:
        UsageError: says which.
    """
    there = {core for cluster in probe.conditions.clusters for core in cluster.cores}
    chosen = there if plan.cpus is None else {*cpu_numbers(plan.cpus)}
    if not chosen <= there:
        lacking = ", ".join(str(core) for core in sorted(chosen - there))
        raise UsageError(
            f"--cpus {plan.cpus}: {board.name} has no core {lacking}.",
            f"It has: {', '.join(str(core) for core in sorted(there))}.",
        )
    if plan.threads is not None and plan.threads > len(chosen):
        where = f"{board.name} has" if plan.cpus is None else f"--cpus {plan.cpus} is"
        cores = f"{len(chosen)} core{'s' if len(chosen) > 1 else ''}"
        raise UsageError(
            f"{plan.threads} threads were asked for, and {where} {cores}: "
            "more threads than cores only wait for each other.",
            f"Say --threads {len(chosen)} or less.",
        )


def _rates(declared: Facts, measured: Rates) -> dict[str, object]:
    rates: dict[str, object] = {}
    for field, kind in (
        ("storage_read_bytes_per_s", "storage_read_rate"),
        ("memory_bytes_per_s", "memory_rate"),
    ):
        found, said = getattr(measured, field), getattr(declared, field)
        rates[field] = found or said
        rates[kind] = "measured" if found else "declared" if said else None
    return rates
