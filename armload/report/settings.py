"""What was asked of a run, as named words, and the shortest words that tell runs apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from armload.analysis.run import Run
from armload.bench.suite import standard_suite
from armload.core.shell import join
from armload.core.values import format_bytes
from armload.engines.llama_cpp import repacked
from armload.engines.plan import NO_SPECULATION, WITHOUT_EFFECT, Plan, short_prompt

BOARD, MODEL, QUANTISATION, THREADS = "board", "model", "quantisation", "threads"
TEST = "test"
"""Of a suite."""

REPACKED = "weights repacked"
WEIGHTS, RESIDENT, CACHE = "weights", "resident", "cache"
PROGRAM, BUILD, MODEL_SUM = "program", "build", "model SHA-256"

ALWAYS_SHOWN = (MODEL, QUANTISATION, THREADS, BOARD)
"""The rest is shown where it differs."""

_SUMS = (BUILD, MODEL_SUM)
"""Shown where nothing that a person can read differs."""

_NAMES = {
    "n_predict": "n",
    "embed": "texts at a time",
    "depth_tokens": "depth",
    "cpus": "cores",
    "context_tokens": "context",
    "batch_tokens": "batch",
    "micro_batch_tokens": "micro-batch",
    "kv_type": "KV type",
    "resident_bytes": RESIDENT,
    "extra": "arguments",
    "cold": CACHE,
    "cool_to_celsius": "cool to",
}

_DECIDED = ("prompt", _NAMES["n_predict"])
"""What a suite's test decides."""

_CHOICES = {THREADS: THREADS} | {
    field: _NAMES.get(field, field.replace("_", " "))
    for field in Plan.model_fields
    if field not in ("prompt_tokens", *WITHOUT_EFFECT)
}
"""Names by the plan's fields. A prompt's length says itself."""

_UNSET = "default"
NONE = "-"
"""For a watched program, which has no plan, and perhaps no model; for a run of no suite."""

Settings = Mapping[str, str]


def choices_of(plan: Plan | None) -> Settings:
    """Return every choice that a plan holds, by its name; what was left open says so."""
    if plan is None:
        return dict.fromkeys(_CHOICES.values(), NONE)
    return {name: _choice(plan, field) for field, name in _CHOICES.items()}


def settings_of(run: Run) -> Settings:
    """Return every choice that a run was made with, by its name."""
    choices, binary = choices_of(run.plan), run.binary
    if run.plan is not None and run.plan.threads is None and run.trace is not None:
        choices = {**choices, THREADS: f"{choices[THREADS]}: {run.trace.threads}"}
    return {
        BOARD: run.board.name,
        MODEL: stem(run.model.name) or NONE,
        QUANTISATION: run.model.quantisation or NONE,
        TEST: suite_test_of(run) or NONE,
        **choices,
        REPACKED: _words(repacked(run.command)) if run.plan else NONE,
        "command": join(run.watched.words) if run.watched else NONE,
        PROGRAM: binary.program,
        "target": binary.target,
        "compiler": binary.compiler,
        "engine": binary.engine,
        BUILD: binary.build_id,
        MODEL_SUM: run.model.sha256[:12],
    }


def suite_test_of(run: Run) -> str:
    """Return the name of the suite's test that a run is; empty for another run.

    A text of the standard suite is known by itself; lengths may be anybody's.
    """
    if run.place is not None and run.place.test:
        return run.place.test
    test = standard_suite().test_of(run.plan)
    return test.name if test is not None and test.prompt is not None else ""


def stem(name: str) -> str:
    """Return a model's name without its ending."""
    return PurePosixPath(name).name.removesuffix(".gguf")


def subject(run: Run) -> str:
    """Name what ran: the model, or the program where it was given none."""
    return stem(run.model.name) or run.binary.program


def differing(settings: Sequence[Settings]) -> list[str]:
    """Return the names of what differs, checksums only where nothing else does."""
    differ = [name for name in settings[0] if len({each[name] for each in settings}) > 1]
    if all(each.get(TEST, NONE) != NONE for each in settings):
        differ = [name for name in differ if name not in _DECIDED]
    readable = [name for name in differ if name not in _SUMS]
    if len({tuple(each[name] for name in readable) for each in settings}) == len(settings):
        return readable
    return differ


def labels(runs: Sequence[Run]) -> list[dict[str, str]]:
    """Return the shortest words for each of several runs, by the name of the setting."""
    settings = [settings_of(run) for run in runs]
    names = differing(settings)
    models = _short_models(runs)
    found = []
    for run, each in zip(runs, settings, strict=True):
        words = {name: each[name] if name == BOARD else f"{name} {each[name]}" for name in names}
        if THREADS in words:
            words[THREADS] = f"{each[THREADS]} thread{'' if each[THREADS] == '1' else 's'}"
        if words.get(TEST):
            words[TEST] = each[TEST] if each[TEST] != NONE else ""
        for name in (QUANTISATION, MODEL_SUM):  # the model's short name holds what is needed
            words.pop(name, None)
        if len(set(models.values())) > 1:
            words = {BOARD: words.get(BOARD, ""), MODEL: models[run.model.sha256], **words}
            words[MODEL] = models[run.model.sha256]
        found.append({name: word for name, word in words.items() if word})
    return found


def _short_models(runs: Sequence[Run]) -> dict[str, str]:
    """Return names by checksum: the quantisation alone, where models differ by it alone."""
    models = {run.model.sha256: run.model for run in runs}
    names = {sha: stem(model.name) for sha, model in models.items()}
    kinds = {(model.architecture, model.parameters) for model in models.values()}
    quantisations = {model.quantisation for model in models.values()}
    if len(kinds) == 1 and len(quantisations) == len(models):
        return {sha: model.quantisation for sha, model in models.items()}
    short = dict(zip(names, _without_common_words(list(names.values())), strict=True))
    for found in (short, names):
        if len(set(found.values())) == len(models):
            return found
    return {sha: f"{name} {sha[:8]}" for sha, name in names.items()}


def _without_common_words(names: Sequence[str]) -> list[str]:
    """Shorten ``Llama-3.2-1B-Q4_0`` to ``1B-Q4_0`` where another one is ``Llama-3.2-3B-Q8_0``."""
    split = [name.split("-") for name in names]
    common = set(split[0]).intersection(*split) if len(split) > 1 else set()
    shortened = ["-".join(word for word in words if word not in common) for words in split]
    return shortened if all(shortened) else list(names)


def _choice(plan: Plan, field: str) -> str:
    value = getattr(plan, field)
    match field:
        case "prompt" if plan.prompt_tokens is not None:
            return f"of {plan.prompt_tokens} token{'' if plan.prompt_tokens == 1 else 's'}"
        case "prompt":
            return short_prompt(plan.prompt) if plan.prompt else NONE
        case "threads" if value is None:
            return "auto"
        case "cold":
            return "cold" if value else "warm"
        case "extra":
            return join(value) or "none"
        case "speculate" | "lora":
            return value or NO_SPECULATION
        case "resident_bytes":
            return "what fits" if value is None else format_bytes(value)
    return _words(value)


def _words(value: object) -> str:
    if value is None:
        return _UNSET
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)
