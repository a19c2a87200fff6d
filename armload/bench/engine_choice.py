"""Which engine a run takes where that is left to the forecast."""

from __future__ import annotations

from armload.analysis.fitted import per_token
from armload.bench.fitting import fit
from armload.boards.board import is_group
from armload.core.errors import UsageError
from armload.core.progress import Progress
from armload.engines.distributed import check_supported
from armload.engines.plan import EngineChoice, Plan
from armload.engines.prediction import Expected, Prediction
from armload.models.model import Model
from armload.runs.reach import CONNECTED, Reach
from armload.runs.request import Request

Choice = tuple[EngineChoice, str]
"""The engine, and why."""


def with_chosen_engine(
    request: Request, model: Model, plan: Plan, progress: Progress, reach: Reach = CONNECTED
) -> Plan:
    """Return a plan whose engine is the one that the forecast says is faster; say which and why."""
    if plan.engine != "auto":
        return plan
    own = plan.model_copy(update={"engine": "llama.cpp"})
    engine, reason = _choice(request, model, own, progress, reach)
    progress.say(f"--engine auto: {engine} for {model.name}: {reason}.")
    return plan.model_copy(update={"engine": engine})


def _choice(request: Request, model: Model, plan: Plan, progress: Progress, reach: Reach) -> Choice:
    if not is_group(request.board):
        return "llama.cpp", f"{request.board} is one board, with which nothing can be shared"
    try:
        check_supported(plan)
    except UsageError as error:
        return "llama.cpp", _clause(error.message)
    (found,) = fit(request, (str(model.path),), plan, progress, reach=reach).models
    return faster_engine(found.prediction)


def faster_engine(found: Prediction) -> Choice:
    """Return the engine that is expected to be faster on a group, and why.

    Where a time is unknown, llama.cpp runs what it can run.
    """
    division = found.division
    shared = division.alternative("dllama") if division is not None else None
    if division is None or shared is None:
        return "llama.cpp", "nothing is known of distributed-llama there"
    if shared.refused:
        return "llama.cpp", _clause(shared.refused)
    if division.refused:
        return "dllama", f"llama.cpp cannot divide it: {_clause(division.refused)}"
    times = [each for each in (found.token_s, division.tensor_s) if each is not None]
    if shared.token_s is None or not times:
        return "llama.cpp", "how fast either is cannot be predicted"
    layers_s = min(times, key=lambda each: each.value)
    engine: EngineChoice = "dllama" if shared.token_s.value < layers_s.value else "llama.cpp"
    return engine, _compared(shared.token_s, layers_s)


def _compared(shared: Expected, layers: Expected) -> str:
    return (
        f"about {per_token(shared)} per token are expected with distributed-llama, "
        f"{per_token(layers)} with llama.cpp"
    )


def _clause(sentences: str) -> str:
    return sentences.strip().removeprefix("--engine dllama: ").removesuffix(".")
