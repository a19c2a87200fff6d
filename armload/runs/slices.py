"""Running slices of a model on a board, once for each board, build and number of threads."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

from armload.analysis.compute import Compute, from_slices, times_of
from armload.analysis.run import Run
from armload.core.errors import ArmloadError, BoardError, DataError
from armload.core.progress import Progress
from armload.core.workspace import cache_folder
from armload.deploy.clean import delete_folders
from armload.deploy.layout import Layout
from armload.engines.completion import PROGRAM, Completion
from armload.engines.llama_cpp import NO_REPACK, offers, repacks, whole_plan
from armload.engines.plan import Plan
from armload.models.gguf import read_model
from armload.models.header import Header
from armload.models.model import Model
from armload.models.slices import Slice, slice_model, slice_path, slices_of
from armload.runs import store
from armload.runs.pipeline import execute
from armload.runs.session import Session

PROMPT_TOKENS = 64
OUTPUT_TOKENS = 24

MOST_OF_MEMORY = 0.5
"""Share of the available memory that a slice may take: it must not read from storage."""


def measured_compute(
    where: Session, model: Model, header: Header, plan: Plan, context: int, progress: Progress
) -> tuple[Compute, Run]:
    """Return what computing a token of a model takes, from slices that run on the board.

    Args:
        plan: whose threads and cores count.
        context: length of the KV cache that the model will have.

    Returns:
        It, and the run of one of the slices, which tells what the board gives.

    Raises:
        ConnectError, BusyError: as for ``execute``.
        ArmloadError: there is no slice of that model, or its run failed; says why.
    """
    available = where.found.conditions.memory_available_bytes
    planned = slices_of(model, header)
    if planned.layers.size_bytes > MOST_OF_MEMORY * available:
        raise BoardError("a slice of the model does not fit into the board's memory")
    is_repacked = repacks(model, available, context)
    runs = []
    label = f"Timing slices of {model.path.name}"
    with progress.step(label, total=2, unit="slices") as step:
        for done, each in enumerate((planned.thin, planned.layers)):
            step.update(done)
            runs.append(_ran(where, each, plan, progress, is_repacked=is_repacked))
        step.update(2)
    thin, layers = (times_of(run) for run in runs)
    if thin is None or layers is None:
        raise DataError("a slice's run ended too early")
    return from_slices(planned, layers, thin), runs[-1]


def known_compute(
    where: Session, model: Model, header: Header, plan: Plan, context: int
) -> tuple[Compute, Run] | None:
    """Return the same from slices that were timed there before; none without them.

    They were timed with a program that a session of others, such as the scorer, does not have.
    """
    if PROGRAM not in where.binaries:
        return None
    available = where.found.conditions.memory_available_bytes
    try:
        planned = slices_of(model, header)
        is_repacked = repacks(model, available, context)
        runs = [
            store.load(_folder(where, _engine(where, path, plan, is_repacked=is_repacked)))
            for each in (planned.thin, planned.layers)
            if (path := slice_path(each)).is_file()
        ]
    except Exception:  # noqa: BLE001 - whatever is wrong with a forecast, the run goes on
        return None
    times = [times_of(run) for run in runs]
    if len(times) < 2 or times[0] is None or times[1] is None:
        return None
    return from_slices(planned, times[1], times[0]), runs[-1]


def _engine(where: Session, path: Path, plan: Plan, *, is_repacked: bool) -> Completion:
    binary, model = where.binaries[PROGRAM], read_model(path)
    kept = () if is_repacked or not offers(binary.path, NO_REPACK) else (NO_REPACK,)
    wanted = Plan(
        prompt_tokens=PROMPT_TOKENS,
        n_predict=OUTPUT_TOKENS,
        threads=plan.threads,
        cpus=plan.cpus,
        weights="mapped",
        extra=kept,
    )
    return Completion(whole_plan(wanted, model), binary, model)


def _ran(
    where: Session, planned: Slice, plan: Plan, progress: Progress, *, is_repacked: bool
) -> Run:
    path = slice_model(planned, progress)
    engine = _engine(where, path, plan, is_repacked=is_repacked)
    folder = _folder(where, engine)
    try:
        return store.load(folder)
    except ArmloadError:
        pass
    run, at = execute(where, engine, progress, new=False)
    if run.exit.status != 0:
        raise BoardError(f"a slice of the model did not run: {run.exit.meaning}")
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(at, folder)
    connection = where.connection
    on_board = Layout(workdir=connection.board.workdir).run(run.id)
    delete_folders(connection.host, [on_board])
    return run


def _folder(where: Session, engine: Completion) -> Path:
    board, found = where.connection.board, where.found
    identity = (
        board.model_dump(mode="json", include={"name", "reach", "target"}),
        [found.cores, found.max_khz, found.cpu_features, found.conditions.memory_total_bytes],
        engine.fingerprint,
    )
    key = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
    return cache_folder() / "slices" / key[:16]
