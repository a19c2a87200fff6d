"""Which model to run first on a board: one that is published, fits, and writes sense."""

from __future__ import annotations

from armload.analysis.fitted import FittedModel
from armload.bench.fitting import Fit, fit
from armload.boards.board import VirtualReach, load_board
from armload.core.progress import Progress
from armload.deploy.rates import measured_rates
from armload.engines.plan import Plan
from armload.models.published import is_smollm2
from armload.runs.request import Request
from armload.runs.session import leased_board, session


def first_models(request: Request, plan: Plan, progress: Progress) -> tuple[FittedModel, ...]:
    """Return the models to choose the first one from, the fastest first, as ``fit`` lists them.

    The board's memory and storage are measured before, as they would be for the first run. None
    is returned where none stays in the board's memory, or where the board is emulated: the
    smallest of them is too slow there.

    Args:
        plan: what each is to run.
    """
    if isinstance(load_board(request.board).reach, VirtualReach):
        return ()
    with session(request, (), progress) as where, leased_board(where, progress):
        connection = where.connection
        measured_rates(connection.host, connection.board, where.found, progress)
    return proposed(fit(request, (), plan, progress))


def proposed(found: Fit) -> tuple[FittedModel, ...]:
    """Return those of the current models that have a file, stay in memory and write sense."""
    return tuple(
        each
        for each in found.models
        if each.has_file and each.prediction.verdict == "fits" and not is_smollm2(each.model)
    )
