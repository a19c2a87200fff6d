"""Which model to run first on a board: one that is published, fits, and writes sense."""

from __future__ import annotations

import math

from armload.analysis.wording.predictions import FittedModel, fitted
from armload.boards.board import Board, VirtualReach
from armload.engines.plan import Plan
from armload.models.outline import outline_called, outlined
from armload.runs.predicting import predict_from_facts

PUBLISHED = {
    "qwen2.5-0.5b": ("hf:Qwen/Qwen2.5-0.5B-Instruct-GGUF", ("Q4_0", "Q4_K_M", "Q8_0")),
    "llama-3.2-1b": ("hf:bartowski/Llama-3.2-1B-Instruct-GGUF", ("Q4_0", "Q4_K_M", "Q8_0")),
    "gemma-3-1b": ("hf:ggml-org/gemma-3-1b-it-GGUF", ("Q4_K_M", "Q8_0")),
    "qwen2.5-1.5b": ("hf:Qwen/Qwen2.5-1.5B-Instruct-GGUF", ("Q4_0", "Q4_K_M")),
    "qwen3-1.7b": ("hf:Qwen/Qwen3-1.7B-GGUF", ("Q8_0",)),
    "qwen3-4b": ("hf:Qwen/Qwen3-4B-GGUF", ("Q4_K_M",)),
}
"""Models of the list that ``fit`` makes, each with a trained one on the hub and its types.

Smaller ones are left out: few of their sentences make sense.
"""


def first_models(board: Board, plan: Plan) -> tuple[FittedModel, ...]:
    """Return the models to choose the first one from, the fastest first, by their references.

    Nothing is run or downloaded. None is returned where none stays in the board's memory, or where
    the board is emulated: the smallest of them is too slow there.

    Args:
        plan: what each is to run.
    """
    if isinstance(board.reach, VirtualReach):
        return ()
    found = []
    for name, (repository, file_types) in PUBLISHED.items():
        for file_type in file_types:
            model, _ = outlined(outline_called(name), file_type)
            prediction = predict_from_facts(board.facts, model, plan)
            if prediction.verdict == "fits":
                found.append(fitted(f"{repository}:{file_type}", board.name, model, prediction))
    return tuple(sorted(found, key=_time_then_size))


def _time_then_size(model: FittedModel) -> tuple[float, int]:
    token_s = model.prediction.token_s
    return (token_s.value if token_s else math.inf, model.size_bytes)
