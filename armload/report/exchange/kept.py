"""What of a run is published: numbers, checksums, and words of fixed lists; all else is dropped.

A text of a run may hold anything, such as a user's name in that of a board. None is published for
what it lacks: each must have a form that leaves no room for a name, or be asked for.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping
from functools import cache
from itertools import pairwise
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from armload.analysis.conditions_log import BackgroundProcess
from armload.analysis.energy import Energy
from armload.analysis.findings import Figures
from armload.analysis.limit import find_limit
from armload.analysis.run import Run, Summary, Verdict
from armload.analysis.summary import summarise
from armload.analysis.wording import findings, limits
from armload.boards.conditions import ClusterState, Conditions, SwapDevice
from armload.boards.hardware import KIND as HARDWARE
from armload.boards.hardware import recognised
from armload.build.features import ENCODINGS
from armload.core.errors import UsageError
from armload.core.files import file_name_of
from armload.core.values import Value
from armload.core.workspace import shipped_folders
from armload.deploy.exit_reason import Exit
from armload.engines.completion import Completion
from armload.engines.job import BinaryRecord, BoardRecord, ModelRecord, SweepPoint
from armload.engines.output import Reported
from armload.engines.plan import DRAFT, KV_TYPES, SEED_PROMPT, Plan, cpu_numbers, cpu_words
from armload.engines.trace import Trace
from armload.engines.watched.engine import WatchedProgram
from armload.report.exchange import Included
from armload.report.formatting import weights

EVERYTHING: tuple[Included, ...] = get_args(Included)

_ENGINES = (Completion.name, WatchedProgram.name)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_BUILD_ID = re.compile(r"[0-9a-f]{6,64}")
_VERSION = re.compile(r"\d{1,3}\.\d{1,3}\.\d{1,3}(?:\.?(?:a|b|rc|dev|post)\d{1,3})?")
_ENGINE_COMMIT = re.compile(r"[0-9a-f]{7,40}|b\d{1,6}|\d{1,2}\.\d{1,3}\.\d{1,3}(?:-dev)?")
_SOURCE = re.compile(r"llama-cpp-python \d{1,2}\.\d{1,3}\.\d{1,3}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00")
_QUANTISATION = re.compile(r"(?:BF|F|I)\d{2}|I8|(?:I|T)?Q\d_[01KMSLNX]{1,3}|(?:MX|NV)FP4")
_COMPILER = re.compile(r"(zig|gnu|native) (?:.*[^\d.])?(\d{1,2}\.\d{1,2}\.\d{1,2})")
_KERNEL = re.compile(r"(\d{1,2}\.\d{1,3}(?:\.\d{1,3})?)(?![\d.])")
_FLAG_VALUE = re.compile(r"-?\d{1,12}(?:\.\d{1,6})?")

_FAMILIES = (
    *("arctic", "baichuan", "bailing", "bitnet", "bloom", "chatglm", "cohere", "command-r"),
    *("dbrx", "deci", "deepseek", "dots", "ernie", "exaone", "falcon", "gemma", "glm", "gpt"),
    *("granite", "grok", "hunyuan", "internlm", "jais", "jamba", "lfm", "llada", "llama", "mamba"),
    *("mimo", "minicpm", "minimax", "mistral", "mpt", "nemotron", "olmo", "orion", "phi", "plamo"),
    *("qwen", "rwkv", "seed_oss", "smallthinker", "smollm", "stablelm", "starcoder", "xverse"),
)
_ARCHITECTURE = re.compile(
    rf"(?:{'|'.join(_FAMILIES)})\d{{0,3}}(?:[._]\d)?"
    r"(?:[._-]?(?:e|h1|hybrid|h|j|moe|neox|next|n|oss|swa|vl|v)){0,3}"
)
"""As llama.cpp calls them (``src/llama-arch.cpp``)."""

_KERNEL_WORDS = frozenset(
    (
        *("aarch64", "amd64", "android", "arm64", "armbian", "cloud", "current", "edge", "generic"),
        *("legacy", "lowlatency", "lts", "meson64", "openharmony", "preempt", "raspi", "rk2410"),
        *("rockchip", "rpi", "rt", "sunxi", "sunxi64", "tegra", "v7", "v8", "vendor", "x86"),
    )
)
"""That tell kernels of one version apart, where they follow it."""

_GOVERNORS = frozenset(
    (
        *("conservative", "interactive", "ondemand", "performance", "powersave", "schedutil"),
        *("userspace", "walt"),
    )
)
_CPU_FEATURES = frozenset(
    (
        *(encoding.feature for encoding in ENCODINGS),
        *("asimd", "fp", "half", "neon", "vfpv3", "vfpv4"),
        *("avx", "avx2", "avx512_bf16", "avx512_vnni", "avx512bw", "avx512f", "avx_vnni", "f16c"),
        *("amx_bf16", "amx_int8", "bmi2", "fma", "sse4_2", "ssse3"),
    )
)
_PROGRAMS = frozenset(
    (
        *("llama-bench", "llama-cli", "llama-completion", "llama-server"),
        *("llama-speculative-simple", "llm_bench", "llm_demo"),
    )
)
_SWITCHES = frozenset(
    (
        *("--ignore-eos", "--kv-unified", "-kvu", "--mlock", "--no-escape", "--no-mmap"),
        *("--no-display-prompt", "--no-kv-offload", "--no-repack", "--no-warmup", "--offline"),
        *("--perf", "--repack", "--swa-full", "-no-cnv", "-nr"),
    )
)
_FLAGS = frozenset(
    (
        *("--batch-size", "--cache-type-k", "--cache-type-v", "--ctx-size", "--draft"),
        *("--draft-max", "--draft-min", "--flash-attn", "--n-cpu-moe", "--numa", "--poll"),
        *("--predict", "--prio", "--seed", "--spec-ngram-simple-size-m"),
        *("--spec-ngram-simple-size-n", "--spec-type", "--temp", "--threads", "--threads-batch"),
        *("--ubatch-size", "-b", "-c", "-ctk", "-ctv", "-fa", "-fit", "-n", "-ncmoe", "-s", "-t"),
        *("-tb", "-ub"),
    )
)
"""Of llama.cpp; with a number, or one of the words below."""

_FLAG_WORDS = frozenset(
    (
        *KV_TYPES,
        *("auto", "distribute", "isolate", "numactl", "off", "on"),
        *("draft-mtp", "draft-simple", "ngram-simple"),
    )
)


def kept(run: Run, include: Collection[Included] = ()) -> Run:
    """Return what of a run is published; of what is already such a part, the same again.

    Args:
        include: what else is wanted of it.

    Raises:
        UsageError: it measured something else than the time of tokens.
    """
    if run.engine_name not in _ENGINES:
        raise UsageError(
            f"{run.id}: this run of {run.engine_name} has no tokens whose times could be exported.",
            "Give runs of demo, bench or watch.",
        )
    if run.is_excerpt:
        include = EVERYTHING
    board, model = _board(run, include), _model(run.model, include)
    before, plan, trace = _conditions(run.before), _plan(run, include), _trace(run.trace)
    started_utc = _text(run.started_utc, _TIME)
    ended = Exit(kind=run.exit.kind, status=run.exit.status, meaning=_meaning(run.exit))
    return Run(
        is_excerpt=True,
        id=_id(run, started_utc, board, model),
        fingerprint="",
        place=_place(run.place),
        started_utc=started_utc,
        armload=_text(run.armload, _VERSION),
        engine_name=run.engine_name,
        plan=plan,
        binary=_binary(run.binary),
        model=model,
        draft=_model(run.draft, include) if run.draft else None,
        command=(_program(run.binary.program), *_flags(run.command)),
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
        limit=limits.limit(
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
        governor=_governor(run.governor),
        background_processes=_background(run.background_processes),
        swapped=run.swapped,
        clocks=run.clocks,
        energy=_energy(run.energy),
    )


def _text(text: str, form: re.Pattern[str]) -> str:
    return text if form.fullmatch(text) else ""


def _hashed(text: str) -> str:
    """Return what is the same for equal texts alone, and of which they are not found out."""
    if re.fullmatch(r"[0-9a-f]{12}", text):
        return text
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:12]


def _id(run: Run, started_utc: str, board: BoardRecord, model: ModelRecord) -> str:
    time = started_utc.removesuffix("+00:00").replace("-", "").replace(":", "") or "00000000T000000"
    what = file_name_of(model.name.removesuffix(".gguf") or _program(run.binary.program))
    begin = f"{time}Z-{board.name}-{what}-"
    end = run.id.removeprefix(begin)
    return begin + (end if re.fullmatch(r"[0-9a-f]{4}", end) else _hashed(run.id)[:4])


def _place(place: SweepPoint | None) -> SweepPoint | None:
    if place is None:
        return None
    return SweepPoint(
        sweep=_hashed(place.sweep),
        cell=place.cell,
        round=place.round,
        warm_up=place.warm_up,
        precision=place.precision,
    )


def _board(run: Run, include: Collection[Included]) -> BoardRecord:
    board, device = run.board, ""
    target = board.target if board.target in _shipped("toolchains") else ""
    name = target or "board"
    found = recognised(board.device, run.before.memory_total_bytes)
    if found is not None and found.hardware.name in _shipped(HARDWARE):
        name, device = found.name, found.hardware.device_models[0]
    if "board" in include:
        name = _text(board.name, _NAME) or name
    if run.before.boot_id:  # two boards of a kind are not one
        name = f"{name}-{_hashed(run.before.boot_id)[:4]}"
    return BoardRecord(
        name=name,
        target=target,
        device=device,
        cpu_features=_features(board.cpu_features),
        cores=board.cores,
        storage_read_bytes_per_s=board.storage_read_bytes_per_s,
        storage_read_rate=board.storage_read_rate,
        memory_bytes_per_s=board.memory_bytes_per_s,
        memory_rate=board.memory_rate,
        workstation=board.workstation,
    )


@cache
def _shipped(kind: str) -> frozenset[str]:
    """Return the names of armload's own files of a kind; a person's may be called anything."""
    folders = shipped_folders(kind)
    return frozenset(path.stem for folder in folders for path in folder.glob("*.yaml"))


def _features(names: Collection[str]) -> tuple[str, ...]:
    return tuple(name for name in names if name in _CPU_FEATURES)


def _model(model: ModelRecord, include: Collection[Included]) -> ModelRecord:
    architecture = _text(model.architecture, _ARCHITECTURE)
    quantisation = _text(model.quantisation, _QUANTISATION)
    name = ""
    if model.name:
        size = weights(model.parameters).replace(" ", "") if model.parameters else ""
        name = "-".join(filter(None, (architecture or "model", size, quantisation)))
        name += ".gguf" if model.name.endswith(".gguf") else ""
    if "model" in include:
        name = _text(model.name, _NAME) or name
    return ModelRecord(
        name=name,
        sha256=_text(model.sha256, _SHA256),
        size_bytes=model.size_bytes,
        architecture=architecture,
        quantisation=quantisation,
        parameters=model.parameters,
        bytes_per_token=model.bytes_per_token,
        context_memory=model.context_memory,
        experts=model.experts,
    )


def _binary(binary: BinaryRecord) -> BinaryRecord:
    compiler = _COMPILER.fullmatch(binary.compiler)
    return BinaryRecord(
        program=_program(binary.program),
        sha256=_text(binary.sha256, _SHA256),
        size_bytes=binary.size_bytes,
        build_id=_text(binary.build_id, _BUILD_ID),
        target=binary.target if binary.target in _shipped("toolchains") else "",
        compiler=f"{compiler[1]} {compiler[2]}" if compiler else "",
        source=_text(binary.source, _SOURCE),
        engine_commit=_text(binary.engine_commit, _ENGINE_COMMIT),
        features=_features(binary.features),
    )


def _program(name: str) -> str:
    return name if name in _PROGRAMS else "program"


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
        extra=_flags(plan.extra),
        temperature=plan.temperature,
        seed=plan.seed,
        stop_at_end=plan.stop_at_end,
        cold=plan.cold,
        time_limit_s=plan.time_limit_s,
    )


def _flags(words: Collection[str]) -> tuple[str, ...]:
    parts = [part for word in words for part in word.split("=", 1)]
    found: list[str] = []
    for word, value in pairwise([*parts, ""]):
        if word in _SWITCHES:
            found.append(word)
        elif word in _FLAGS and (value in _FLAG_WORDS or _FLAG_VALUE.fullmatch(value)):
            found += [word, value]
    return tuple(found)


def _conditions(now: Conditions) -> Conditions:
    return Conditions(
        boot_id="",
        uptime_s=now.uptime_s,
        kernel=_kernel(now.kernel),
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
        governors=tuple(filter(None, map(_governor, now.governors))),
        clusters=tuple(
            ClusterState(
                cores=each.cores,
                governor=_governor(each.governor),
                khz=each.khz,
                max_khz=each.max_khz,
                limit_khz=each.limit_khz,
            )
            for each in now.clusters
        ),
        celsius=now.celsius,
    )


def _kernel(release: str) -> str:
    version = _KERNEL.match(release)
    if version is None:
        return ""
    words = re.split(r"[-+_.~]", release[version.end() :])
    return "-".join((version[1], *(word for word in words if word in _KERNEL_WORDS)))


def _governor(name: str | None) -> str | None:
    return name if name in _GOVERNORS else None


def _trace(trace: Trace | None) -> Trace | None:
    if trace is None:
        return None
    return Trace(
        format=trace.format,
        clock="CLOCK_MONOTONIC",
        source=trace.source,
        engine_commit=_text(trace.engine_commit, _ENGINE_COMMIT),
        page_bytes=trace.page_bytes,
        threads=trace.threads,
        whole_writes=trace.whole_writes,
        start_ns=trace.start_ns,
        khz_cores=_cores(trace.khz_cores),
        allowed_cores=_cores(trace.allowed_cores),
        last_accepted_tokens=trace.last_accepted_tokens,
        weights=tuple(_without_words(each) for each in trace.weights),
    )


def _cores(words: str | None) -> str | None:
    try:
        return words and cpu_words(cpu_numbers(words))
    except ValueError:
        return None


def _summary(run: Run) -> Summary:
    """Compute the figures anew, but for those that a watched program reports itself."""
    reported = None
    if run.plan is None:
        reported = Reported(**{name: getattr(run.summary, name) for name in Reported.model_fields})
    speculates = run.plan is not None and run.plan.speculate is not None
    return summarise(run.trace, run.steps, reported, speculates=speculates)


def _meaning(ended: Exit) -> str:
    return "done" if ended.status == 0 else f"ended: {ended.kind}"


def _verdict(run: Run, ended: Exit, board: BoardRecord) -> Verdict:
    words = {
        "meaning": f"The program failed: {ended.kind}.",
        "missing": "The program's output is incomplete.",
        "name": "another program",
        "board": board.name,
        "device": board.device,
        "source": "as the board reports",
        "reads": "other",
        "reference": "a reference run",
    }
    figures: list[Figures] = [
        _without_words(finding.figures, words) for finding in run.verdict.findings
    ]
    return findings.verdict(figures)


def _background(
    processes: tuple[BackgroundProcess, ...] | None,
) -> tuple[BackgroundProcess, ...] | None:
    if processes is None:
        return None
    return tuple(_without_words(each, {"name": "another program"}) for each in processes)


def _energy(energy: Energy | None) -> Energy | None:
    if energy is None:
        return None
    problem = "the meter's samples were unusable" if energy.problem else ""
    return _without_words(energy, {"source": "power meter", "problem": problem})


_Kind = TypeVar("_Kind", bound=Value)


def _without_words(value: _Kind, words: Mapping[str, str] | None = None) -> _Kind:
    """Return a value whose texts, but those of a fixed list, are replaced by words of ours.

    Args:
        words: by the names of fields; other texts become empty.
    """
    words = words or {}
    changed: dict[str, object] = {}
    for name, field in type(value).model_fields.items():
        held = getattr(value, name)
        if isinstance(held, Value):
            changed[name] = _without_words(held, words)
        elif isinstance(held, str) and not _is_fixed(field.annotation):
            changed[name] = words.get(name, "")
    return value.model_copy(update=changed)


def _is_fixed(annotation: Any) -> bool:
    kinds = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    return all(kind is type(None) or get_origin(kind) is Literal for kind in kinds)
