"""What computing a token takes on a board: Compute, and how it follows from operations."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Literal

from armload.core.errors import DataError
from armload.core.values import Value
from armload.engines.operations import Graph, Operations, Timed
from armload.engines.prediction import Expected, PredictionNoteKind
from armload.models.model import Model

WHOLE_TOKEN = 1.08
"""A token's time over the sum of its operations, each of which was timed by itself with more of its
data in the caches: fitted to the cells of ``benchmarks/forecast_cells.py``."""

WHOLE_ENCODER = WHOLE_TOKEN
"""The same of an encoder's pass: the open cells of ``benchmarks/forecast_cells.py --images`` have a
median of 1.09."""

OPERATIONS_DOUBT = 0.20
"""Of a time that follows from timed operations, on either side. With 0.15, 33 of the 40 intervals
in docs/figures.md held."""

LOAD_DOUBT = 0.5
"""Of starting a program, from the time of setting a model up and laying its weights out."""

DISTURBED_SHARE = 0.1
"""Share of a token's time in operations that other programs disturbed, from which it is said."""

DISTURBED_TIMES = 6.4
"""Assumed of what other programs can slow down at most: as a test run did (docs/figures.md)."""

LEAST_TIMED = 0.9
"""Share of what operations move that must have been timed."""


class Compute(Value):
    """What computing takes on a board while nothing is read from storage.

    Attributes:
        token_s: per output token.
        prompt_token_s: per token of a prompt.
        load_s: starting the program, and reading header and vocabulary from memory.
        source: operations that were timed there, or its facts.
        prompt_growth_s: by which each token of a prompt takes longer than the one before it.
        is_memory_bound: the memory limits a token, not the cores; none where that is not known.
        notes: what to know of it.
    """

    token_s: Expected
    prompt_token_s: Expected
    load_s: Expected
    source: Literal["operations", "roofline"]
    prompt_growth_s: float = 0.0
    is_memory_bound: bool | None = None
    notes: tuple[PredictionNoteKind, ...] = ()

    def prompt_s(self, tokens: int) -> Expected:
        """Return the time of a prompt, which is no less than that of a token."""
        attention = Expected.within(self.prompt_growth_s * tokens**2 / 2, OPERATIONS_DOUBT)
        return self.token_s.longer(self.prompt_token_s * float(tokens) + attention)


def with_adapters(compute: Compute, model: Model) -> Compute:
    """Return what computing takes with a model's adapters.

    Each token reads all their weights, as it reads the model's, and a token of a prompt computes
    with all of them.
    """
    parameters = sum(each.parameters for each in model.adapters)
    of_token = 1 + model.adapter_bytes / max(1, model.bytes_per_token)
    of_prompt = 1 + parameters / max(1, model.active_parameters or model.parameters)
    return compute.model_copy(
        update={
            "token_s": compute.token_s * of_token,
            "prompt_token_s": compute.prompt_token_s * of_prompt,
        }
    )


def from_operations(
    found: Operations,
    times: Mapping[str, Timed],
    *,
    depth: float,
    memory_bytes_per_s: int | None,
    memory_is_settled: bool = True,
) -> Compute:
    """Add up what the operations of a model's graphs take.

    Args:
        times: by the operations' keys.
        depth: tokens that the KV cache holds, where a token's time is asked.
        memory_bytes_per_s: that all cores together can read; none where it is unknown.
        memory_is_settled: other programs did not make that rate too low.
    """
    shares = [_timed_share(found, each, times) for each in found.graphs]
    timed = [each for each, share in zip(found.graphs, shares, strict=True) if share >= LEAST_TIMED]
    tokens = [each for each in timed if each.tokens == 1]
    if not tokens:
        raise DataError(f"only {max(shares):.0%} of the model's computation was timed")
    prompts = [each for each in timed if each.tokens > 1] or tokens
    token_s, growth_s = _line(tokens, [_sum_s(found, each, times) for each in tokens])
    token_s = WHOLE_TOKEN * (token_s + depth * growth_s)
    weights_bytes = sum(
        count * found.operations[number].weights_bytes for number, count in tokens[0].counts
    )
    reading_s = 0.0
    if memory_bytes_per_s and found.timed_bytes < weights_bytes:
        reading_s = weights_bytes / memory_bytes_per_s
    if memory_is_settled:
        token_s = max(token_s, reading_s)
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
    disturbed_s = sum(
        count * (_time_s(found, number, times) or 0.0)
        for number, count in tokens[0].counts
        if (known := times.get(found.operations[number].key)) and not known.is_settled
    )
    disturbed = min(1.0, WHOLE_TOKEN * disturbed_s / token_s) if token_s else 0.0
    varied = _varied(found, tokens[0], times)
    token = _expected(token_s, varied)
    # How much faster disturbed operations are on an idle board is not known, but they must read.
    least_s = reading_s / (1 + OPERATIONS_DOUBT if memory_is_settled else DISTURBED_TIMES)
    least_s = least_s or token.low / DISTURBED_TIMES
    low = min(token.low, max(token.low * (1 - disturbed), least_s))
    return Compute(
        token_s=token.model_copy(update={"low": low}),
        prompt_token_s=_expected(prompt_s, varied),
        prompt_growth_s=prompt_growth_s,
        load_s=Expected.within(found.load_s + layout_s + token_s, LOAD_DOUBT),
        source="operations",
        notes=("operations disturbed",) if disturbed >= DISTURBED_SHARE else (),
    )


def encoder_from_operations(
    found: Operations, times: Mapping[str, Timed], counts: Sequence[int]
) -> Expected | None:
    """Add up what an encoder's passes take; none where an operation of it could not be timed.

    Args:
        counts: how often each of the graphs is computed.
    """
    passes = [_pass_s(found, graph, times) for graph in found.graphs]
    known = [count * each for count, each in zip(counts, passes, strict=True) if each is not None]
    if len(known) < len(passes):
        return None
    longest = max(range(len(passes)), key=known.__getitem__)
    return _expected(WHOLE_ENCODER * sum(known), _varied(found, found.graphs[longest], times))


def _pass_s(found: Operations, graph: Graph, times: Mapping[str, Timed]) -> float | None:
    taken = [(count, _time_s(found, number, times)) for number, count in graph.counts]
    known = [count * time_s for count, time_s in taken if time_s is not None]
    return sum(known) if len(known) == len(taken) else None


def _varied(found: Operations, graph: Graph, times: Mapping[str, Timed]) -> tuple[float, float]:
    """Return the shortest and the longest time of a pass, each over its mean."""
    known = [
        (count, times[key])
        for number, count in graph.counts
        if (key := found.operations[number].key) in times and times[key].times_s
    ]
    mean_s = sum(count * (each.time_s or 0.0) for count, each in known)
    if not mean_s:
        return 1.0, 1.0
    shortest_s = sum(count * each.times_s[0] for count, each in known)
    return shortest_s / mean_s, sum(count * each.times_s[-1] for count, each in known) / mean_s


def _expected(value: float, varied: tuple[float, float]) -> Expected:
    usual = Expected.within(value, OPERATIONS_DOUBT)
    return Expected(
        value=value,
        low=min(usual.low, value * varied[0]),
        high=max(usual.high, value * varied[1]),
    )


def _line(graphs: Sequence[Graph], values: Sequence[float]) -> tuple[float, float]:
    """Return the value at no depth, and what each further token of depth adds."""
    first, last = graphs[0], graphs[-1]
    if first.depth == last.depth:
        return values[0], 0.0
    growth = max(0.0, (values[-1] - values[0]) / (last.depth - first.depth))
    # Noise in the timing of attention must not leave less than nothing for all else.
    return max(values[0] - growth * first.depth, values[0] / 2), growth


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
