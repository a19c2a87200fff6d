"""How fast several boards of one kind would be with distributed-llama, from facts alone."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from armload.analysis.distributed_forecast import NodeTimes, node_times
from armload.analysis.fitted import FittedModel, fitted, per_token
from armload.analysis.prediction_notes import note
from armload.bench.outlined import OutlinedModel
from armload.boards.hardware import ChosenHardware
from armload.core.errors import UsageError
from armload.core.values import format_bytes, three_figures
from armload.engines.distributed import check_supported
from armload.engines.llama_cpp import context_tokens, likely_prompt_tokens
from armload.engines.plan import Plan
from armload.engines.prediction import (
    Division,
    GroupForecast,
    MemoryParts,
    PartTime,
    Prediction,
)
from armload.engines.spread import Share
from armload.models.distributed_llama import BATCH_TOKENS, DistributedModel, distributed_model
from armload.runs.operations import mid_depth
from armload.runs.resources import ASSUMED_AVAILABLE, declared_resources

_COUNTED = re.compile(r"(?P<count>[1-9]\d{0,2})x[ -]?(?P<name>.+)", re.IGNORECASE)


def counted_hardware(name: str) -> tuple[int, str]:
    """Return how many boards ``4x raspberry-pi-5-8gb`` means, and of which kind; 0 of a name alone.

    With a hyphen in place of the blank, a shell needs no quotes.
    """
    match = _COUNTED.fullmatch(name)
    return (int(match["count"]), match["name"]) if match else (0, name)


def node_counts(boards: int) -> list[int]:
    """Return with how many of some boards to compare: all, and those that can share a model."""
    powers = [1 << exponent for exponent in range(boards.bit_length())]
    return [*powers, *([boards] if boards not in powers else [])]


def cluster_models(
    nodes: int, chosen: ChosenHardware, outlined: Sequence[OutlinedModel], plan: Plan
) -> tuple[FittedModel, ...]:
    """Predict models on so many boards of one kind.

    Raises:
        UsageError: distributed-llama cannot run a model, on any number of boards, or lacks an
            option of the plan.
    """
    check_supported(plan)
    return tuple(_fitted(nodes, chosen, each, plan) for each in outlined)


def cluster_name(nodes: int, chosen: ChosenHardware) -> str:
    return f"{nodes}x-{chosen.name}"


def _fitted(nodes: int, chosen: ChosenHardware, outlined: OutlinedModel, plan: Plan) -> FittedModel:
    shared = _shared(outlined)
    needs = shared.memory(
        nodes, context_tokens(plan, outlined.model), plan.micro_batch_tokens or BATCH_TOKENS
    )
    name = cluster_name(nodes, chosen)
    shares = tuple(
        Share(
            board=chosen.name,
            layers=shared.layers,
            weights_bytes=need.weights_bytes,
            memory_bytes=need.total_bytes,
        )
        for need in needs
    )
    found = Prediction(
        verdict="unknown",
        context_tokens=context_tokens(plan, outlined.model),
        prompt_tokens=likely_prompt_tokens(plan),
        division=Division(shares=shares),
    )
    memory = declared_resources(chosen.specs).memory
    if memory is None:
        found = found.model_copy(update={"notes": (note("memory unknown"),)})
        return fitted(*(outlined.name, name, outlined.model, found), has_file=outlined.has_file)
    root, available = needs[0], memory.available_bytes
    parts = MemoryParts(
        weights_bytes=root.weights_bytes,
        kv_bytes=root.kv_bytes,
        program_bytes=root.buffer_bytes,
        window_bytes=0,
        reserve_bytes=0,
        available_bytes=available,
    )
    refused = shared.obstacle(nodes)
    if not refused and root.total_bytes > available:
        refused = (
            f"the first board needs {format_bytes(root.total_bytes)} of memory, and "
            f"{format_bytes(available)} are available"
        )
    notes = [note("memory assumed", reason=f"{ASSUMED_AVAILABLE:.0%}")]
    times = None
    if not refused:
        depth = mid_depth(outlined.model, plan)
        times = node_times(shared, nodes, chosen.specs, depth=depth, threads=plan.threads)
        notes.append(note("cluster from facts"))
    update: dict[str, object] = {"verdict": "cannot run" if refused else "fits", "memory": parts}
    if refused:
        update["division"] = Division(refused=f"{refused}.")
    if times is not None:
        update |= _of_times(times, chosen.name)
    found = found.model_copy(update={**update, "notes": tuple(notes)})
    described = fitted(*(outlined.name, name, outlined.model, found), has_file=outlined.has_file)
    return described.model_copy(update={"sentence": _sentence(outlined.name, name, found, times)})


def _of_times(times: NodeTimes, board: str) -> dict[str, object]:
    parts = [PartTime(kind="member", board=board, token_s=times.computing.value)]
    if times.exchanging.value:
        parts.append(PartTime(kind="link", board=board, token_s=times.exchanging.value))
    by_memory = {None: "unknown", True: "memory bandwidth", False: "compute"}
    return {
        "token_s": times.token_s,
        "compute": "roofline",
        "bottleneck": by_memory[times.is_memory_bound],
        "group": GroupForecast(split="tensor", parts=tuple(parts)),
    }


def _sentence(model: str, name: str, found: Prediction, times: NodeTimes | None) -> str:
    if found.division is None or found.division.refused:
        why = found.division.refused if found.division else ""
        return f"{model} cannot run on {name} with distributed-llama: {why}"
    first, *others = found.division.shares
    memory = f"{format_bytes(first.memory_bytes)} of memory"
    if others:
        memory += f" on the first board, {format_bytes(others[0].memory_bytes)} on each other one"
    if times is None:
        return f"{model} on {name} with distributed-llama needs {memory}; its speed is unknown."
    exchange = (
        f", of which {three_figures(1000 * times.exchanging.value)} ms for exchanges"
        if others
        else ""
    )
    return (
        f"{model} on {name} with distributed-llama: about {per_token(times.token_s)} per token"
        f"{exchange}; {memory}."
    )


def _shared(outlined: OutlinedModel) -> DistributedModel:
    if outlined.outline is None:
        raise UsageError(
            "To compare numbers of boards, name the models.", "Use --model, such as FILE.gguf."
        )
    try:
        # The divisors of rotary positions are among the weights, and take no time.
        return distributed_model(Path(outlined.reference), outlined.outline, ())
    except UsageError as error:
        raise UsageError(
            error.message,
            "For several boards, name a model that distributed-llama runs (--type Q4_0 predicts "
            "it quantised so); with llama.cpp, name --hardware without a number.",
        ) from error


def how_many(model: str, alone: FittedModel, clusters: Mapping[int, FittedModel]) -> str:
    """Say how much faster a model is on several boards than on one with llama.cpp.

    Args:
        alone: what is expected of it on one board with llama.cpp.
        clusters: what is expected by the number of boards.
    """
    times = {count: each.prediction.token_s for count, each in clusters.items()}
    timed = {count: time.value for count, time in times.items() if time}
    if not timed:
        return f"{model} cannot run on any of these numbers of boards with distributed-llama."
    one = alone.prediction.token_s
    base = f"{three_figures(1 / one.value)} tokens/s" if one else "at an unknown speed"
    said = ", ".join(
        f"{three_figures(1 / time_s)} on {count}"
        + (f" ({three_figures(one.value / time_s)} times)" if one else "")
        for count, time_s in timed.items()
    )
    return f"{model}: {base} on one board with llama.cpp; with distributed-llama, {said}."
