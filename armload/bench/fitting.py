"""Which models fit on a board, and how fast each would be, without uploading any."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

from armload.analysis.wording.predictions import FittedModel, fitted, recommendation
from armload.boards.board import Board, RealReach, load_board
from armload.boards.connect import connect
from armload.conversion.quantising import quantised_for
from armload.core.errors import ConnectError
from armload.core.progress import Progress
from armload.core.values import Value
from armload.deploy.retry import Retry, patiently
from armload.engines.completion import PROGRAM, settings_of
from armload.engines.llama_cpp import check_architecture
from armload.engines.plan import Plan
from armload.engines.prediction import Prediction
from armload.models.find import LIKE, header_of
from armload.models.gguf import read_outline
from armload.models.header import Header
from armload.models.model import Model, check_generates
from armload.models.outline import listed_models
from armload.models.quant_mix import foreseen
from armload.runs.predicting import predict_from_facts, predict_there, predict_without_runs
from armload.runs.request import Request
from armload.runs.session import Session, session

PATIENCE_S = 5.0
"""How long a board may not answer before its file is used instead."""

_Outlined = tuple[str, Model, Header]


class Fit(Value):
    """What is expected of models on a board.

    Attributes:
        board: its name.
        unreachable: why the facts in its file were used instead of the board; else empty.
        models: in the order in which they were given; current models by speed.
        recommendation: which of them to take.
    """

    board: str
    unreachable: str = ""
    models: tuple[FittedModel, ...]
    recommendation: str


def fit(
    request: Request,
    model_names: Sequence[str],
    plan: Plan,
    progress: Progress,
    *,
    file_types: Sequence[str] = (),
) -> Fit:
    """Predict what models need of a board, and how fast they would be there.

    Args:
        request: where, and with which source.
        model_names: as for ``header_of``; none for the current models, in the usual types or in
            ``file_types``. For them no slice runs on the board.
        plan: what each is to run.
        file_types: that the models would be quantised to; none for the models as they are. They
            are quantised only where that cannot be foreseen from their headers.

    Raises:
        UsageError: there is no such board or model, or a context is too long for a model.
        ArmloadError: a model's header cannot be read, or the engine cannot be built.
    """
    board = load_board(request.board)
    outlined = [
        each for name in model_names for each in _outlined(request, name, file_types, progress)
    ]
    if not model_names:
        outlined = [
            (f"{LIKE}{name}", model, header)
            for name, model, header in listed_models(tuple(file_types))
        ]
    unreachable = ""
    try:
        _check_answers(board, progress)
        with session(request, (PROGRAM,), progress, settings=[settings_of(plan)]) as where:
            models = _predicted(
                board,
                outlined,
                lambda model, header: (
                    _predicted_there(where, model, header, plan, progress)
                    if model_names
                    else predict_without_runs(where, model, header, plan)
                ),
            )
    except ConnectError as error:
        unreachable = error.message
        progress.say(error.message)
        if error.remedy:
            progress.say(error.remedy)
        progress.say(f"Predicting from the facts in boards/{board.name}.yaml instead.")
        models = _predicted(
            board,
            outlined,
            lambda model, _: predict_from_facts(board, model, plan),
        )
    if not model_names:
        models = tuple(sorted(models, key=_slowest_last))
    return Fit(
        board=board.name,
        unreachable=unreachable,
        models=models,
        recommendation=recommendation(board.name, models),
    )


def _outlined(
    request: Request, name: str, file_types: Sequence[str], progress: Progress
) -> Iterator[_Outlined]:
    model, header = read_outline(header_of(name, progress))
    check_generates(model)
    if not file_types:
        yield name, model, header
    for each in file_types:
        later = foreseen(model, header, each)
        if later is None:
            (path,) = quantised_for(request, [name], [each], progress)
            later = read_outline(Path(path))
        yield f"{name} {each}", *later


def _predicted_there(
    where: Session, model: Model, header: Header, plan: Plan, progress: Progress
) -> Prediction:
    check_architecture(where.binaries[PROGRAM], model)
    return predict_there(where, model, header, plan, progress)


def _slowest_last(model: FittedModel) -> float:
    token_s = model.prediction.token_s
    return token_s.value if token_s else math.inf


def _check_answers(board: Board, progress: Progress) -> None:
    """Give up on a real board soon: unlike a run, a prediction can do without it."""
    if isinstance(board.reach, RealReach):
        with closing(connect(board, progress)) as host:
            patiently(lambda: host.run(":"), Retry(PATIENCE_S))


def _predicted(
    board: Board,
    outlined: Sequence[_Outlined],
    predict: Callable[[Model, Header], Prediction],
) -> tuple[FittedModel, ...]:
    return tuple(
        fitted(name, board.name, model, predict(model, header)) for name, model, header in outlined
    )
