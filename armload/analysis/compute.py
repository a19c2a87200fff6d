"""What computing a token takes on a board: from its operations, or from the board's facts."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Literal

from armload.boards.board import CpuCluster
from armload.core.errors import DataError
from armload.core.values import Value
from armload.engines.operations import Graph, Operations, Timed
from armload.engines.prediction import Expected, PredictionNoteKind
from armload.models.model import Model

OPERATIONS_DOUBT = 0.10
"""Of a time that is the sum of timed operations, on either side."""

PROMPT_DOUBT = 0.20
"""Of a prompt's time: kernels are a little faster with more columns than those that were timed."""

LOAD_DOUBT = 0.5
"""Of starting a program, from the time of setting a model up and laying its weights out."""

LEAST_TIMED = 0.9
"""Share of what operations move that must have been timed."""

ROOFLINE_DOUBT = 2.0
"""Factor on either side of a time that is computed from facts alone."""

IN_ORDER = ("Cortex-A35", "Cortex-A53", "Cortex-A55", "Cortex-A510", "Cortex-A520")
WEIGHTS_PER_CYCLE, WEIGHTS_PER_CYCLE_IN_ORDER = 2.0, 0.5
"""Assumed of a core that decodes quantised weights; the factor of doubt covers the types."""

MEMORY_EFFICIENCY = 0.75
"""Assumed share of the memory's read bandwidth that decoding reaches at most."""

PROMPT_GAIN = 3.0
"""Assumed: how much cheaper a token of a prompt is to compute than one of decode."""

LOAD_S = 1.0
"""Assumed of starting the program and reading the vocabulary, where neither was measured."""


class Compute(Value):
    """What computing takes on a board while nothing is read from storage.

    Attributes:
        token_s: per output token.
        prompt_token_s: per token of a prompt.
        load_s: starting the program, and reading header and vocabulary from memory.
        source: operations that were timed there, or its facts.
        prompt_growth_s: by which each token of a prompt takes longer than the one before it.
        notes: what to know of it.
    """

    token_s: Expected
    prompt_token_s: Expected
    load_s: Expected
    source: Literal["operations", "roofline"]
    prompt_growth_s: float = 0.0
    notes: tuple[PredictionNoteKind, ...] = ()

    def prompt_s(self, tokens: int) -> Expected:
        """Return the time of a prompt, which is no less than that of a token."""
        attention = Expected.within(self.prompt_growth_s * tokens**2 / 2, PROMPT_DOUBT)
        return self.token_s.longer(self.prompt_token_s * float(tokens) + attention)


def from_operations(
    found: Operations,
    times: Mapping[str, Timed],
    *,
    depth: float,
    memory_bytes_per_s: int | None,
) -> Compute:
    """Add up what the operations of a model's graphs take.

    Args:
        times: by the operations' keys.
        depth: tokens that the KV cache holds, where a token's time is asked.
        memory_bytes_per_s: that all cores together can read; none where it is unknown.

    Raises:
        DataError: too little was timed.
    """
    shares = [_timed_share(found, each, times) for each in found.graphs]
    timed = [each for each, share in zip(found.graphs, shares, strict=True) if share >= LEAST_TIMED]
    tokens = [each for each in timed if each.tokens == 1]
    if not tokens:
        raise DataError(f"only {max(shares):.0%} of what the model computes was timed")
    prompts = [each for each in timed if each.tokens > 1] or tokens
    token_s, growth_s = _line(tokens, [_sum_s(found, each, times) for each in tokens])
    token_s = max(token_s + depth * growth_s, token_s / 2)
    weights_bytes = sum(
        count * found.operations[number].weights_bytes for number, count in tokens[0].counts
    )
    if memory_bytes_per_s and found.timed_bytes < weights_bytes:
        token_s = max(token_s, weights_bytes / memory_bytes_per_s)
    in_tokens = {number for each in tokens for number, _ in each.counts}
    prompt_s, prompt_growth_s = _line(
        prompts,
        [
            _sum_s(found, each, times, without=in_tokens if each.tokens > 1 else ()) / each.tokens
            for each in prompts
        ],
    )
    layout_s = sum(
        count * times[key].load_s
        for number, count in tokens[0].counts
        if (key := found.operations[number].key) in times
    )
    return Compute(
        token_s=Expected.within(token_s, OPERATIONS_DOUBT),
        prompt_token_s=Expected.within(prompt_s, PROMPT_DOUBT),
        prompt_growth_s=prompt_growth_s,
        load_s=Expected.within(found.load_s + layout_s + token_s, LOAD_DOUBT),
        source="operations",
    )


def _line(graphs: Sequence[Graph], values: Sequence[float]) -> tuple[float, float]:
    """Return the value at no depth, and what each further token of depth adds."""
    first, last = graphs[0], graphs[-1]
    if first.depth == last.depth:
        return values[0], 0.0
    growth = max(0.0, (values[-1] - values[0]) / (last.depth - first.depth))
    return values[0] - growth * first.depth, growth


def _sum_s(
    found: Operations, graph: Graph, times: Mapping[str, Timed], *, without: Container[int] = ()
) -> float:
    """Return what a pass takes; operations that were not timed take as long for each byte."""
    timed_s, timed_bytes, all_bytes = 0.0, 0, 0
    for number, count in graph.counts:
        if number in without:
            continue
        moved_bytes = count * _moved_bytes(found, number)
        all_bytes += moved_bytes
        if (time_s := _time_s(found, number, times)) is not None:
            timed_bytes += moved_bytes
            timed_s += count * time_s
    return timed_s * all_bytes / timed_bytes if timed_bytes else timed_s


def _timed_share(found: Operations, graph: Graph, times: Mapping[str, Timed]) -> float:
    moved = [(count * _moved_bytes(found, number), number) for number, count in graph.counts]
    all_bytes = sum(each for each, _ in moved)
    timed = sum(each for each, number in moved if _time_s(found, number, times) is not None)
    return timed / all_bytes if all_bytes else 0.0


def _moved_bytes(found: Operations, number: int) -> int:
    operation = found.operations[number]
    return operation.weights_bytes + operation.moved_bytes


def _time_s(found: Operations, number: int, times: Mapping[str, Timed]) -> float | None:
    timed = times.get(found.operations[number].key)
    return timed.time_s if timed else None


def from_facts(
    model: Model, *, clusters: Sequence[CpuCluster], memory_bytes_per_s: int | None
) -> Compute | None:
    """Bound a token's time by the CPU's cycles and the memory's bandwidth.

    None without either, and for a model whose layers are unlike those that this was made for.
    """
    if model.unlike:
        return None
    cycles_per_s = sum(
        cluster.cores * (cluster.max_mhz or 0) * 1e6 * _weights_per_cycle(cluster.name)
        for cluster in clusters
    )
    bounds = []
    if cycles_per_s:
        active = model.parameters * model.bytes_per_token / model.size_bytes
        bounds.append(active / cycles_per_s)
    if memory_bytes_per_s:
        bounds.append(model.bytes_per_token / (MEMORY_EFFICIENCY * memory_bytes_per_s))
    if not bounds:
        return None
    token = Expected.within(max(bounds), ROOFLINE_DOUBT - 1)
    prompt_s = bounds[0] / PROMPT_GAIN if cycles_per_s else token.value
    return Compute(
        token_s=token,
        prompt_token_s=Expected.within(prompt_s, ROOFLINE_DOUBT - 1),
        load_s=Expected.within(LOAD_S, ROOFLINE_DOUBT),
        source="roofline",
        notes=("estimated from facts",),
    )


def _weights_per_cycle(name: str) -> float:
    return WEIGHTS_PER_CYCLE_IN_ORDER if name in IN_ORDER else WEIGHTS_PER_CYCLE
