"""Which model to run first on a board: one that is published, fits, and writes sense."""

from __future__ import annotations

import math

from armload.analysis.wording.predictions import FittedModel, fitted
from armload.boards.board import Board, VirtualReach
from armload.engines.plan import Plan
from armload.models.outline import outline_called, outlined
from armload.models.published import PUBLISHED, SMOLLM2, published_as
from armload.runs.predicting import predict_from_facts


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
    for name, (place, file_types) in PUBLISHED.items():
        if place == SMOLLM2:  # few of its sentences make sense
            continue
        for file_type in file_types:
            model, _ = outlined(outline_called(name), file_type)
            prediction = predict_from_facts(board.facts, model, plan)
            if prediction.verdict == "fits":
                reference = published_as(name, file_type)
                found.append(fitted(reference, board.name, model, prediction))
    return tuple(sorted(found, key=_time_then_size))


def _time_then_size(model: FittedModel) -> tuple[float, int]:
    token_s = model.prediction.token_s
    return (token_s.value if token_s else math.inf, model.size_bytes)
