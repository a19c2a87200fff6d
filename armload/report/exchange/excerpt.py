"""What of a run is published: numbers, and texts of a known form; all else is dropped."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache, partial
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from armload.analysis.background import BackgroundProcess
from armload.analysis.energy import Energy
from armload.analysis.finding import RunFinding
from armload.analysis.limit import find_limit
from armload.analysis.limit_findings import Limit
from armload.analysis.run import Run
from armload.analysis.summary import Summary, summarise
from armload.analysis.verdict import Verdict
from armload.boards.conditions import ClusterState, Conditions, SwapDevice
from armload.boards.hardware import KIND as HARDWARE
from armload.boards.hardware import Hardware, called
from armload.core.errors import UsageError
from armload.core.values import Value
from armload.core.yamlfile import load_shipped
from armload.deploy.exit_reason import INTERRUPTED, Exit
from armload.engines.completion import Completion
from armload.engines.job import BinaryRecord, BoardRecord, ModelRecord, SweepPoint
from armload.engines.output import Reported
from armload.engines.plan import DRAFT, SEED_PROMPT, Plan
from armload.engines.trace import Trace
from armload.engines.watched.engine import WatchedProgram
from armload.models.packaged import packaged_name
from armload.report.exchange import Included, forms
from armload.report.formatting import weights
from armload.runs.selection import model_in_id

EVERYTHING: tuple[Included, ...] = get_args(Included)

_catalogue = cache(partial(load_shipped, HARDWARE, Hardware))

_ENGINES = (Completion.name, WatchedProgram.name)


def excerpt_of(run: Run, include: Collection[Included] = ()) -> Run:
    """Return what of a run is published; of what is already such a part, the same again.

    Args:
        include: what else is wanted of it.

    Raises:
        UsageError: it measured something else than the time of tokens.
    """
    if run.engine_name not in _ENGINES:
        raise UsageError(
            f"{run.id}: this run of {run.engine_name} has no token times to export.",
            "Export runs of demo, bench or watch.",
        )
    if run.is_excerpt:
        include = EVERYTHING
    board, model = _board(run, include), _model(run.model, include)
    before, plan, trace = _conditions(run.before), _plan(run, include), _trace(run.trace)
    started_utc = forms.in_form(run.started_utc, forms.TIME)
    ended = Exit(kind=run.exit.kind, status=run.exit.status, meaning=_meaning(run.exit))
    return Run(
        is_excerpt=True,
        id=_id(run, started_utc, board, model),
        fingerprint="",
        place=_place(run.place),
        started_utc=started_utc,
        armload=forms.in_form(run.armload, forms.VERSION),
        engine_name=run.engine_name,
        plan=plan,
        binary=_binary(run.binary),
        model=model,
        draft=_model(run.draft, include) if run.draft else None,
        command=(forms.program_name(run.binary.program), *forms.flags(run.command)),
        board=board,
        before=before,
        after=_conditions(run.after) if run.after else None,
        trace=trace,
        steps=run.steps,
        summary=_summary(run),
        engine=run.engine,
        memory=run.memory,
        text=run.text if "prompt" in include else "",
        exit=ended,
        limit=Limit.of(
            find_limit(
                run.steps,
                trace,
                model=model,
                board=board,
                before=before,
                cpus=plan.cpus if plan else None,
            )
        ),
        verdict=_verdict(run, ended, board),
        cache=run.cache,
        governor=forms.governor_name(run.governor),
        background_processes=_background(run.background_processes),
        swapped=run.swapped,
        clocks=run.clocks,
        emulation=run.emulation,
        energy=_energy(run.energy),
    )


def _id(run: Run, started_utc: str, board: BoardRecord, model: ModelRecord) -> str:
    time = started_utc.removesuffix("+00:00").replace("-", "").replace(":", "") or "00000000T000000"
    what = model_in_id(model.name or forms.program_name(run.binary.program))
    return f"{time}Z-{board.name}-{what}-{forms.digits_of(run.id)}"


def _place(place: SweepPoint | None) -> SweepPoint | None:
    if place is None:
        return None
    return SweepPoint(
        sweep=forms.digits_of(place.sweep),
        cell=place.cell,
        round=place.round,
        warm_up=place.warm_up,
        precision=place.precision,
    )


_QEMU_DEVICE = "linux,dummy-virt"
"""What the device tree of QEMU's machine ``virt`` calls itself."""


def _board(run: Run, include: Collection[Included]) -> BoardRecord:
    board, target, device = run.board, forms.target_name(run.board.target), ""
    name = target or "board"
    if hardware := called(board.device, _catalogue()):
        name = hardware.name_with(run.before.memory_total_bytes)
        device = hardware.device_models[0]
    elif board.device == _QEMU_DEVICE:  # it must not be taken for a board with this CPU
        name, device = f"emulated-{name}", _QEMU_DEVICE
    if "board" in include:
        name = forms.in_form(board.name, forms.NAME) or name
    if run.before.boot_id:  # two boards of a kind are not one
        name = f"{name}-{forms.digits_of(run.before.boot_id)}"
    return BoardRecord(
        name=name,
        target=target,
        device=device,
        cpu_features=forms.cpu_features(board.cpu_features),
        cores=board.cores,
        storage_read_bytes_per_s=board.storage_read_bytes_per_s,
        storage_read_rate=board.storage_read_rate,
        memory_bytes_per_s=board.memory_bytes_per_s,
        memory_rate=board.memory_rate,
        workstation=board.workstation,
    )


def _model(model: ModelRecord, include: Collection[Included]) -> ModelRecord:
    architecture = forms.in_form(model.architecture, forms.ARCHITECTURE)
    quantisation = forms.in_form(model.quantisation, forms.QUANTISATION)
    name = ""
    if model.name:
        size = weights(model.parameters).replace(" ", "") if model.parameters else ""
        name = "-".join(filter(None, (architecture or "model", size, quantisation)))
        name += ".gguf" if model.name.endswith(".gguf") else ""
    if "model" in include:
        name = forms.in_form(model.name, forms.NAME) or name
    sha256 = forms.in_form(model.sha256, forms.SHA256)
    return ModelRecord(
        name=packaged_name(sha256) or forms.random_model(model.name) or name,
        sha256=sha256,
        size_bytes=model.size_bytes,
        architecture=architecture,
        quantisation=quantisation,
        parameters=model.parameters,
        bytes_per_token=model.bytes_per_token,
        context_memory=model.context_memory,
        experts=model.experts,
    )


def _binary(binary: BinaryRecord) -> BinaryRecord:
    return BinaryRecord(
        program=forms.program_name(binary.program),
        sha256=forms.in_form(binary.sha256, forms.SHA256),
        size_bytes=binary.size_bytes,
        build_id=forms.in_form(binary.build_id, forms.BUILD_ID),
        target=forms.target_name(binary.target),
        compiler=forms.compiler_label(binary.compiler),
        source=forms.in_form(binary.source, forms.SOURCE),
        engine_commit=forms.in_form(binary.engine_commit, forms.ENGINE_COMMIT),
        prebuilt_in=forms.in_form(binary.prebuilt_in, forms.RELEASE),
        features=forms.cpu_features(binary.features),
    )


def _plan(run: Run, include: Collection[Included]) -> Plan | None:
    plan = run.plan
    if plan is None:
        return None
    speculate = plan.speculate
    if plan.draft_model is not None:
        named = _model(run.draft, include).name if run.draft else ""
        speculate = f"{DRAFT}{named or 'model'}"
    is_open = "prompt" in include or plan.prompt == SEED_PROMPT
    return Plan(
        prompt=plan.prompt if is_open else "",
        prompt_tokens=plan.prompt_tokens,
        n_predict=plan.n_predict,
        threads=plan.threads,
        cpus=plan.cpus,
        numa=plan.numa,
        context_tokens=plan.context_tokens,
        kv_type=plan.kv_type,
        flash_attention=plan.flash_attention,
        weights=plan.weights,
        resident_bytes=plan.resident_bytes,
        batch_tokens=plan.batch_tokens,
        micro_batch_tokens=plan.micro_batch_tokens,
        speculate=speculate,
        split=plan.split,
        extra=forms.flags(plan.extra),
        temperature=plan.temperature,
        seed=plan.seed,
        stop_at_end=plan.stop_at_end,
        cold=plan.cold,
        cool_to_celsius=plan.cool_to_celsius,
        governor=forms.governor_name(plan.governor),
        time_limit_s=plan.time_limit_s,
    )


def _conditions(now: Conditions) -> Conditions:
    return Conditions(
        boot_id="",
        uptime_s=now.uptime_s,
        kernel=forms.kernel_release(now.kernel),
        load_1min=now.load_1min,
        memory_total_bytes=now.memory_total_bytes,
        memory_available_bytes=now.memory_available_bytes,
        memory_limit_bytes=now.memory_limit_bytes,
        swap_used_bytes=now.swap_used_bytes,
        swap_total_bytes=now.swap_total_bytes,
        swaps=tuple(
            SwapDevice(
                name="", kind=each.kind, total_bytes=each.total_bytes, used_bytes=each.used_bytes
            )
            for each in now.swaps
        ),
        workdir_free_bytes=now.workdir_free_bytes,
        workdir_in_memory=now.workdir_in_memory,
        governors=tuple(filter(None, map(forms.governor_name, now.governors))),
        clusters=tuple(
            ClusterState(
                cores=each.cores,
                governor=forms.governor_name(each.governor),
                khz=each.khz,
                max_khz=each.max_khz,
                limit_khz=each.limit_khz,
            )
            for each in now.clusters
        ),
        celsius=now.celsius,
    )


def _trace(trace: Trace | None) -> Trace | None:
    if trace is None:
        return None
    return Trace(
        format=trace.format,
        clock="CLOCK_MONOTONIC",
        source=trace.source,
        engine_commit=forms.in_form(trace.engine_commit, forms.ENGINE_COMMIT),
        page_bytes=trace.page_bytes,
        threads=trace.threads,
        whole_writes=trace.whole_writes,
        start_ns=trace.start_ns,
        khz_cores=forms.core_list(trace.khz_cores),
        allowed_cores=forms.core_list(trace.allowed_cores),
        last_accepted_tokens=trace.last_accepted_tokens,
        weights=tuple(_without_words(each) for each in trace.weights),
    )


def _summary(run: Run) -> Summary:
    """Compute the figures anew, but for those that a watched program reports itself."""
    reported = None
    if run.plan is None:
        reported = Reported(**{name: getattr(run.summary, name) for name in Reported.model_fields})
    speculates = run.plan is not None and run.plan.speculate is not None
    return summarise(run.trace, run.steps, reported, speculates=speculates)


def _meaning(ended: Exit) -> str:
    if ended.status == 0:
        return "done"
    what = "The run was interrupted" if ended.kind in INTERRUPTED else "The program failed"
    return f"{what}: {ended.kind}."


def _verdict(run: Run, ended: Exit, board: BoardRecord) -> Verdict:
    words = {
        "meaning": ended.meaning,
        "missing": "The program's output is incomplete.",
        "name": "another program",
        "board": board.name,
        "device": board.device,
        "source": "as the board reports",
        "reference": "a reference run",
    }
    figures: list[RunFinding] = [
        _without_words(finding.figures, words) for finding in run.verdict.findings
    ]
    return Verdict.of(figures, advises=False)


def _background(
    processes: tuple[BackgroundProcess, ...] | None,
) -> tuple[BackgroundProcess, ...] | None:
    if processes is None:
        return None
    return tuple(map(_process, processes))


def _process(found: BackgroundProcess) -> BackgroundProcess:
    name = forms.kernel_thread(found.name) if found.kernel else "another program"
    return found.model_copy(update={"name": name})


def _energy(energy: Energy | None) -> Energy | None:
    if energy is None:
        return None
    problem = "the meter's samples were unusable" if energy.problem else ""
    return _without_words(energy, {"source": "power meter", "problem": problem})


_Kind = TypeVar("_Kind", bound=Value)


def _without_words(value: _Kind, words: Mapping[str, str] | None = None) -> _Kind:
    """Return a value whose texts, but those of a fixed list, are replaced by words of ours.

    Args:
        words: by the names of fields; other texts that are not known become empty.
    """
    words = words or {}
    changed: dict[str, object] = {}
    for name, field in type(value).model_fields.items():
        held = getattr(value, name)
        if isinstance(held, BackgroundProcess):
            changed[name] = _process(held)
        elif isinstance(held, Value):
            changed[name] = _without_words(held, words)
        elif isinstance(held, str) and not _is_fixed(field.annotation):
            changed[name] = words.get(name, forms.known_word(held))
    return value.model_copy(update=changed)


def _is_fixed(annotation: Any) -> bool:
    kinds = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    return all(kind is type(None) or get_origin(kind) is Literal for kind in kinds)
