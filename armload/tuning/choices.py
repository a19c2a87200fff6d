"""The space of a search: what a board, a model and an engine offer, narrowed by a person."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pydantic import create_model

from armload.bench.options import Options, read_options
from armload.boards.conditions import ClusterState
from armload.core.cpu_sets import cpu_words
from armload.core.errors import UsageError
from armload.core.files import require_file
from armload.core.values import Value
from armload.engines.plan import NGRAM
from armload.tuning.settings import NO_REPACKING
from armload.tuning.space import Choice, Feasibility, Parameter, Setting, Space
from armload.tuning.wanted import SERVED, Objective

_CONTINUING = ("threads", "cpus", "numa", "kv_type", "flash_attention", "engine_args", "resident")
_SERVING = (
    *("slots", "context", "threads", "cpus", "numa", "batch", "micro_batch"),
    *("kv_type", "flash_attention", "resident"),
)
SEARCHED: dict[Objective, tuple[str, ...]] = {
    "decode": (*_CONTINUING, "speculate"),
    "energy": (*_CONTINUING, "speculate"),
    "prefill": (*_CONTINUING, "batch", "micro_batch"),
    "ttft": (*_CONTINUING, "batch", "micro_batch"),
    "total-time": _SERVING,
    "rate": _SERVING,
}
"""The options that may be searched, by objective."""

_SPACE_FIELDS: dict[str, Any] = {
    name: (info.annotation, info)
    for name, info in Options.model_fields.items()
    if any(name in searched for searched in SEARCHED.values())
}
SearchSpace = create_model(
    "SearchSpace",
    __base__=Value,
    __doc__="Options whose values a search tries; each list replaces the default one.",
    **_SPACE_FIELDS,
)
"""What a person's file of a search space may hold, whatever the search is for."""

_KV_TYPES: tuple[Choice, ...] = (None, "q8_0", "q4_0")
_MICRO_BATCHES: tuple[Choice, ...] = (32, 64, 128, 256, None)
_SERVED_MICRO_BATCHES: tuple[Choice, ...] = (128, 256, None)
_BATCHES: tuple[Choice, ...] = (512, 1024, None)
_BATCH_TOKENS = 512
_SLOTS = (1, 2, 4, 8)
_CONTEXTS = (512, 1024, 2048)
_RESIDENT_SHARES = (0.5, 0.75)
_MOST_THREADS_EACH = 8
_MOST_LOOKED_AT = 50_000


class AvailableChoices(Value):
    """What decides which choices there are.

    Attributes:
        clusters: of the board's cores.
        nodes: of its memory (NUMA).
        context_length: that the model was trained for.
        prompt_tokens: of the work.
        repacks: the engine rearranges the weights, and can be told not to.
        streamed_bytes: of weights that may stay in memory; none where they are not streamed.
    """

    clusters: tuple[ClusterState, ...]
    nodes: int = 1
    context_length: int
    prompt_tokens: int
    repacks: bool
    streamed_bytes: int | None


def space_of(objective: Objective, offer: AvailableChoices, narrowing: Path | None) -> Space:
    """Return what is searched.

    Args:
        narrowing: a file of options with lists, that replace what would be searched.
    """
    choices = {
        name: given
        for name, given in _offered(objective, offer).items()
        if len(given) > 1 and name in SEARCHED[objective]
    }
    if narrowing is not None:
        choices.update(listed(narrowing, objective))
    parameters = tuple(
        Parameter(name=name, choices=choices[name], is_ordered=_is_ordered(choices[name]))
        for name in SEARCHED[objective]
        if name in choices
    )
    defaults = Setting(choices={each.name: None for each in parameters})
    return Space(parameters=parameters, defaults=defaults)


def listed(path: Path, objective: Objective) -> dict[str, tuple[Choice, ...]]:
    """Return what a person's file lists, by option.

    Raises:
        UsageError: there is no such file, or an option cannot be searched for that objective.
        DataError: it is malformed; says where.
    """
    require_file(
        path,
        "search space file",
        "Correct the path of --space. Its keys are options, such as the line 'threads: [2, 4]'.",
    )
    options = read_options(path)
    found: dict[str, tuple[Choice, ...]] = {}
    for name in Options.model_fields:
        if name not in options.model_fields_set:
            continue
        if name not in SEARCHED[objective]:
            raise UsageError(
                f"{path}: {name} is not a parameter of a search for {objective}.",
                f"The parameters are: {', '.join(SEARCHED[objective])}.",
            )
        values = getattr(options, name)
        numbers = [each for each in values if isinstance(each, int)]
        found[name] = tuple(sorted(numbers)) if len(numbers) == len(values) else tuple(values)
    return found


def core_sets(clusters: Sequence[ClusterState]) -> dict[str, str]:
    """Return the sets of cores that differ in speed, with what each is called.

    Args:
        clusters: as the board shows them; those of one highest frequency count as one.
    """
    by_khz: dict[int, list[int]] = {}
    for each in clusters:
        by_khz.setdefault(each.max_khz or 0, []).extend(each.cores)
    if len(by_khz) < 2:
        return {}
    slow_to_fast = [cpu_words(by_khz[khz]) for khz in sorted(by_khz)]
    little, *middle, big = slow_to_fast
    names = {little: "the little cluster", big: "the big cluster"}
    names.update(dict.fromkeys(middle, "a middle cluster"))
    if middle:
        fast = sorted(by_khz)[1:]
        names[cpu_words(core for khz in fast for core in by_khz[khz])] = "all but the little cores"
    return names


def require_feasible(space: Space, prior: Callable[[Setting], Feasibility], narrowing: str) -> None:
    """Refuse a space of which no setting can run.

    Args:
        narrowing: the file that made it so; empty without one.
    """
    first = ""
    for setting in itertools.islice(space.settings(), _MOST_LOOKED_AT):
        hopeless = prior(setting).hopeless
        if not hopeless:
            return
        first = first or f"{_typed(setting)}: {hopeless}"
    raise UsageError(
        f"All {min(space.size, _MOST_LOOKED_AT)} configurations are infeasible. {first}.",
        f"List other values in {narrowing}, or allow more."
        if narrowing
        else "Allow more memory, use a smaller model, or list other values with --space FILE.",
    )


def _offered(objective: Objective, offer: AvailableChoices) -> dict[str, tuple[Choice, ...]]:
    cores = sum(len(each.cores) for each in offer.clusters)
    if cores <= _MOST_THREADS_EACH:
        threads = tuple(range(1, cores + 1))
    else:
        step = -(-cores // _MOST_THREADS_EACH)
        threads = (1, *range(step, cores, step), cores)
    sets = core_sets(offer.clusters)
    # Without a choice, a mixed board's fast cores are used.
    every = cpu_words(core for each in offer.clusters for core in each.cores)
    offered: dict[str, tuple[Choice, ...]] = {
        "threads": threads,
        "cpus": (None, *((*sets, every) if sets else ())),
        "numa": (None, "distribute", "isolate") if offer.nodes > 1 else (),
        "kv_type": _KV_TYPES,
        "flash_attention": (None, "off"),
        "engine_args": (None, NO_REPACKING) if offer.repacks else (),
        "speculate": (None, NGRAM),
        "slots": _SLOTS,
        "context": tuple(each for each in _CONTEXTS if each <= offer.context_length),
    }
    if offer.streamed_bytes is not None:
        some = tuple(round(share * offer.streamed_bytes) for share in _RESIDENT_SHARES)
        offered["resident"] = (*some, None)
    if objective in SERVED:
        offered["micro_batch"] = _SERVED_MICRO_BATCHES
    else:
        offered["micro_batch"] = _below(_MICRO_BATCHES, offer.prompt_tokens)
        if offer.prompt_tokens > _BATCH_TOKENS:
            offered["batch"] = _below(_BATCHES, offer.prompt_tokens)
    return offered


def _below(choices: Sequence[Choice], tokens: int) -> tuple[Choice, ...]:
    # A batch that holds the whole prompt is as good as any larger one.
    return tuple(each for each in choices if each is None or int(each) < tokens)


def _is_ordered(choices: Sequence[Choice]) -> bool:
    return all(each is None or isinstance(each, int) for each in choices) and len(choices) > 2


def _typed(setting: Setting) -> str:
    given = (f"{name} {each}" for name, each in setting.choices.items() if each is not None)
    return ", ".join(given) or "the defaults"
