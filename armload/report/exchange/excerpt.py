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
from armload.bench.suite import standard_suite
from armload.boards.hardware import KIND as HARDWARE
from armload.boards.hardware import Hardware, called
from armload.core.errors import UsageError
from armload.core.values import Leaves, Value
from armload.core.yamlfile import load_shipped
from armload.deploy.exit_reason import INTERRUPTED, Exit
from armload.engines.completion import Completion
from armload.engines.distributed import DistributedRun
from armload.engines.job import AdapterRecord, BoardRecord, MediaRecord, ModelRecord
from armload.engines.output import Reported
from armload.engines.plan import DRAFT, SEED_PROMPT, Plan
from armload.engines.watched.engine import WatchedProgram
from armload.models.packaged import packaged_name
from armload.report.exchange import Included, forms
from armload.report.formatting import weights
from armload.runs.selection import model_in_id

EVERYTHING: tuple[Included, ...] = get_args(Included)

_catalogue = cache(partial(load_shipped, HARDWARE, Hardware))

_ENGINES = (Completion.name, DistributedRun.name, WatchedProgram.name)


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
    plan = _plan(run, include)
    ended = Exit(kind=run.exit.kind, status=run.exit.status, meaning=_meaning(run.exit))
    published = leaving(
        run,
        {
            "is_excerpt": True,
            "id": "",
            "engine_name": run.engine_name,
            "plan": plan,
            "model": model,
            "draft": _model(run.draft, include) if run.draft else None,
            "projector": leaving(run.projector, {}) if run.projector else None,
            "images": tuple(leaving(each, {"name": ""}) for each in run.images),
            "audio": _media(run.audio),
            "command": (forms.program_name(run.binary.program), *forms.flags(run.command)),
            "board": board,
            "summary": _summary(run),
            "text": run.text if "prompt" in include else "",
            "exit": ended,
            "limit": run.limit,
            "verdict": _verdict(run, ended, board),
            "background_processes": _background(run.background_processes),
            "energy": _energy(run.energy),
        },
    )
    limit = find_limit(
        run.steps,
        published.trace,
        model=model,
        board=board,
        before=published.before,
        cpus=plan.cpus if plan else None,
        device_clocks=published.device_clocks,
        on_gpu=plan is not None and plan.on_gpu,
    )
    return published.model_copy(
        update={"id": _id(run, published.started_utc, board, model), "limit": Limit.of(limit)}
    )


def _id(run: Run, started_utc: str, board: BoardRecord, model: ModelRecord) -> str:
    time = started_utc.removesuffix("+00:00").replace("-", "").replace(":", "") or "00000000T000000"
    what = model_in_id(model.name or forms.program_name(run.binary.program))
    return f"{time}Z-{board.name}-{what}-{forms.digits_of(run.id)}"


_QEMU_DEVICE = "linux,dummy-virt"
"""What the device tree of QEMU's machine ``virt`` calls itself."""


def _board(run: Run, include: Collection[Included]) -> BoardRecord:
    board, device = run.board, ""
    target = forms.target_name(board.target)
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
    return leaving(board, {"name": name, "device": device})


def _model(model: ModelRecord, include: Collection[Included]) -> ModelRecord:
    adapters = tuple(leaving(each, {"name": _ADAPTER}) for each in model.adapters)
    published = leaving(model, {"name": "", "adapters": adapters})
    architecture, quantisation = published.architecture, published.quantisation
    name = ""
    if model.name:
        size = weights(model.parameters).replace(" ", "") if model.parameters else ""
        name = "-".join(filter(None, (architecture or "model", size, quantisation)))
        name += ".gguf" if model.name.endswith(".gguf") else ""
    if "model" in include:
        name = forms.in_form(model.name, forms.NAME) or name
    known = packaged_name(published.sha256) or forms.random_model(model.name)
    return published.model_copy(update={"name": known or name})


def _media(given: MediaRecord | None) -> MediaRecord | None:
    return leaving(given, {"name": ""}) if given else None


_ADAPTER = "adapter.gguf"


def _adapter(adapter: AdapterRecord) -> str:
    return f"{_ADAPTER}:{adapter.scale:g}"


def _plan(run: Run, include: Collection[Included]) -> Plan | None:
    plan = run.plan
    if plan is None:
        return None
    speculate = plan.speculate
    if plan.draft_model is not None:
        named = _model(run.draft, include).name if run.draft else ""
        speculate = f"{DRAFT}{named or 'model'}"
    is_known = plan.prompt == SEED_PROMPT or standard_suite().test_of(plan) is not None
    is_open = "prompt" in include or is_known
    return leaving(
        plan,
        {
            "prompt": plan.prompt if is_open else "",
            "speculate": speculate,
            "image": plan.image and ",".join("image" for _ in plan.images),
            "audio": plan.audio and "audio",
            "mmproj": plan.mmproj and "mmproj",
            "lora": ",".join(_adapter(each) for each in run.model.adapters) or None,
            "extra": forms.flags(plan.extra),
        },
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


def leaving(record: _Kind, instead: Mapping[str, object]) -> _Kind:
    """Return what of a record may leave, as its fields say; the others are empty.

    Args:
        instead: what is published for some fields, whatever they say.
    """
    published = dict(instead)
    for name, field in type(record).model_fields.items():
        mark = next((each for each in field.metadata if isinstance(each, Leaves)), None)
        if name in instead:
            continue
        if mark is not None:
            published[name] = _formed(getattr(record, name), mark)
        elif field.is_required():
            published[name] = "" if field.annotation is str else None
    return type(record)(**published)


def _formed(value: Any, mark: Leaves) -> Any:
    if isinstance(value, tuple):
        return tuple(each for held in value if (each := _formed(held, mark)) not in ("", None))
    if isinstance(value, Value):
        return _without_words(value) if mark.form == "numbers" else leaving(value, {})
    return forms.FORMS[mark.form](value) if isinstance(value, str) and mark.form else value


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
    return value.model_copy(update=changed) if changed else value


def _is_fixed(annotation: Any) -> bool:
    kinds = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    return all(kind is type(None) or get_origin(kind) is Literal for kind in kinds)
