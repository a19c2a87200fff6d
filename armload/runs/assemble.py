"""From a run's folder to the ``Run`` that is kept: everything it says lies in that folder."""

from __future__ import annotations

import os
from pathlib import Path

from armload.analysis.background import read_background_processes
from armload.analysis.board_resources import Rate
from armload.analysis.clocks import read_clocks
from armload.analysis.conditions_log import (
    RunConditions,
    read_after,
    read_cache,
    read_governor,
    read_governors,
    read_swapped,
    read_throttle_log,
    storage_was_full,
)
from armload.analysis.device_clocks import read_device_clocks_of_run
from armload.analysis.emulation import read_emulation
from armload.analysis.energy import Phase, read_energy
from armload.analysis.limit import find_limit
from armload.analysis.limit_findings import Limit
from armload.analysis.members import ServerLoad
from armload.analysis.run import Run
from armload.analysis.stages import notes_about_stages
from armload.analysis.streaming import notes_about_weights
from armload.analysis.summary import generating, prompting, summarise
from armload.analysis.throttling import notes_about_supply
from armload.analysis.verdict import Verdict, judge
from armload.boards.board import Board, RealReach
from armload.boards.probe import Probe
from armload.core.errors import DataError
from armload.core.ids import begins_now
from armload.core.validation_messages import explain_mistake
from armload.core.values import parse_json
from armload.deploy.exit_reason import Exit, explain
from armload.deploy.exit_record import read_cut, read_peaks
from armload.deploy.layout import JOB_FILE
from armload.engines.engine import Engine, RunContext
from armload.engines.job import BoardRecord, Job, SweepPoint, Workstation
from armload.engines.output import Memory
from armload.engines.prediction import Prediction
from armload.engines.registry import engine_called
from armload.runs.baseline import read_without
from armload.runs.members import member_folder, read_members, with_lost_member
from armload.runs.reference import read_departure
from armload.runs.selection import model_in_id


def board_record(board: Board, probe: Probe) -> BoardRecord:
    """Return what a run keeps of its board."""
    measured, declared = probe.rates, board.facts
    storage = Rate.known(measured.storage_read_bytes_per_s, declared.storage_read_bytes_per_s)
    memory = Rate.known(measured.memory_bytes_per_s, declared.memory_bytes_per_s)
    return BoardRecord(
        name=board.name,
        target=board.target,
        description=board.description,
        hardware=board.hardware,
        labels=board.labels,
        device=probe.device,
        cpu_features=probe.cpu_features,
        cores=probe.cores,
        workstation=None
        if isinstance(board.reach, RealReach)
        else Workstation(cores=os.cpu_count() or 1, load=os.getloadavg()[0]),
        storage_read_bytes_per_s=storage and storage.bytes_per_s,
        storage_read_rate=storage and storage.kind,
        memory_bytes_per_s=memory and memory.bytes_per_s,
        memory_rate=memory and memory.kind,
        memory_clock_hz=measured.memory_clock_hz if memory and memory.kind == "measured" else None,
    )


def new_job(
    engine: Engine,
    board: Board,
    context: RunContext,
    place: SweepPoint | None = None,
    *,
    prediction: Prediction | None = None,
    subtracts_idle: bool = False,
) -> Job:
    """Describe a run that starts now.

    Args:
        context: the same board, ready for it.
        prediction: what is expected of it.
        subtracts_idle: its energy is to be without what the idle board draws.
    """
    subject = engine.subject
    return Job(
        **dict(subject),
        **begins_now(board.name, model_in_id(subject.model.name or subject.binary.program)),
        fingerprint=engine.fingerprint,
        place=place,
        engine_name=engine.name,
        command=engine.command(context),
        environment=dict(engine.environment(context)),
        board=board_record(board, context.found),
        before=context.found.conditions,
        spread=context.spread,
        prediction=prediction,
        subtracts_idle=subtracts_idle,
    )


_PAGE_BYTES = 4096  # where no trace tells


def read_job(folder: Path) -> Job:
    """Read the job of a run's folder.

    Raises:
        DataError: it is missing or malformed.
    """
    path = folder / JOB_FILE
    try:
        return Job.model_validate(parse_json(path.read_bytes()))
    except ValueError as error:
        raise DataError(
            f"{path}: not a valid description of a run: {explain_mistake(error, Job)}."
        ) from error
    except OSError as error:
        raise DataError(f"{path}: not a valid description of a run: {error}.") from error


def assemble(job: Job, folder: Path) -> Run:
    """Compute a run from its raw files; every figure can be computed again from them.

    Args:
        job: what was started, as ``read_job`` gives it.
        folder: where the raw files lie; any may be missing.
    """
    output = engine_called(job.engine_name).read(job, folder)
    header, steps = output.header, output.steps
    members = read_members(job, folder)
    ended = with_lost_member(_ended(job, folder), members, folder)
    around = RunConditions(
        after=read_after(folder, job.before),
        cache=read_cache(folder),
        governor=read_governor(folder),
        storage_was_full=storage_was_full(folder),
        full_members=tuple(
            each.board.name
            for each in members
            if storage_was_full(
                member_folder(folder, each.board.name), was_stopped=each.exit.kind == "done"
            )
        ),
        background=read_background_processes(folder),
        swapped=read_swapped(folder, header.page_bytes if header else _PAGE_BYTES),
        throttling=read_throttle_log(folder),
        clocks=read_clocks(folder),
        device_clocks=read_device_clocks_of_run(folder, steps, job.before, read_governors(folder)),
        emulation=read_emulation(folder),
        lease_lost=(folder / "unleased").exists(),
    )
    departure = read_departure(job, output.text or "", folder)
    speculates = job.plan is not None and job.plan.speculate is not None
    summary = summarise(
        *(header, steps, output.reported),
        speculates=speculates,
        texts_at_a_time=job.plan.embed if job.plan else None,
    )
    # The board looks once a second; a trace looks at every step, and may begin late.
    peaks = read_peaks(folder)
    seen = [output.memory] if output.memory else []
    if peaks is not None:
        seen.append(Memory(max_rss_bytes=peaks.resident_bytes, max_vms_bytes=peaks.virtual_bytes))
    if not seen:
        peak = None
    else:
        resident_bytes = max(each.max_rss_bytes for each in seen)
        virtual_bytes = max(each.max_vms_bytes for each in seen)
        peak = Memory(
            max_rss_bytes=resident_bytes, max_vms_bytes=max(resident_bytes, virtual_bytes)
        )
    return Run(
        **dict(job),
        after=around.after,
        cache=around.cache,
        governor=around.governor,
        background_processes=around.background,
        swapped=around.swapped,
        clocks=around.clocks,
        device_clocks=around.device_clocks,
        emulation=around.emulation,
        energy=read_energy(
            folder,
            steps,
            Phase(prompting(steps), summary.prefill_tokens),
            Phase(generating(steps), summary.decode_tokens),
            subtracts_idle=job.subtracts_idle,
        ),
        trace=header,
        steps=steps,
        summary=summary,
        engine=output.times,
        restored_tokens=output.restored_tokens,
        memory=peak,
        text=output.text or "",
        exit=ended,
        limit=Limit.of(
            find_limit(
                steps,
                header,
                model=job.model,
                board=job.board,
                before=job.before,
                cpus=job.plan.cpus if job.plan else None,
                spread=job.spread,
                forecast=job.prediction.group if job.prediction else None,
                servers=[
                    ServerLoad(
                        board=each.board.name,
                        threads=each.threads,
                        samples=each.samples,
                        node=each.node,
                    )
                    for each in members
                ],
                device_clocks=around.device_clocks,
                on_gpu=job.plan is not None and job.plan.on_gpu,
                embeds=job.plan is not None and job.plan.embed is not None,
            )
        ),
        verdict=Verdict.of(judge(job, output, ended, around, departure)),
        reference=departure,
        without_speculation=read_without(job, summary, output.text or "", folder),
        members=members,
        placement=output.placement,
        result=output.result,
        reported=output.figures,
        notes=(
            *output.notes,
            *notes_about_supply(around.throttling),
            *notes_about_weights(header),
            *notes_about_stages(job, summary.stages, summary.ttft_s),
        ),
    )


def _ended(job: Job, folder: Path) -> Exit:
    lacking = [name for name in job.binary.features if name not in job.board.cpu_features]
    return explain(
        folder,
        board=job.board.name,
        lacking=lacking,
        cut=read_cut(folder),
        memory_total_bytes=job.before.memory_total_bytes,
        filesystem=job.before.workdir_filesystem,
        less_memory=engine_called(job.engine_name).less_memory,
    )
