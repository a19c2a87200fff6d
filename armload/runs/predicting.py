"""Predicting a run: from the board that is there, or from what its file says."""

from __future__ import annotations

from armload.analysis.compute import Compute, from_facts
from armload.analysis.prediction import BoardGives, MeasuredHits, Rate, Streaming, predict
from armload.analysis.run import Run
from armload.analysis.wording.prediction_notes import note
from armload.analysis.wording.predictions import refusal, remedy, said_beforehand
from armload.boards.board import Board
from armload.boards.conditions import Conditions, within_group
from armload.boards.probe import Probe
from armload.boards.rates import Rates
from armload.core.errors import ArmloadError, BoardError, BusyError, ConnectError
from armload.core.progress import Progress
from armload.engines.completion import PROGRAM, Completion, memory_need
from armload.engines.engine import MemoryNeed
from armload.engines.llama_cpp import context_tokens
from armload.engines.plan import Plan
from armload.engines.prediction import Prediction, PredictionNote
from armload.engines.weights import BoardMemory
from armload.models.gguf import read_outline
from armload.models.header import Header
from armload.models.model import Model
from armload.runs.footprint import with_known_memory
from armload.runs.hits import measured_hits
from armload.runs.session import Foresee, Session, leased_board
from armload.runs.slices import known_compute, measured_compute

ASSUMED_AVAILABLE = 0.8
"""Share of the installed memory, where the board cannot be asked."""


def predict_there(
    where: Session,
    model: Model,
    header: Header,
    plan: Plan,
    progress: Progress,
) -> Prediction:
    """Predict a run on a board that answers; slices of the model run there first.

    Raises:
        UsageError: the plan does not suit the model.
        ConnectError, BusyError: the board does not answer any more, or is in use.
    """
    board, found = where.connection.board, where.found
    gives = given_by(board, found.conditions, found.rates)
    context = context_tokens(plan, model)
    # Memory does not depend on the text, and a header may come without a vocabulary.
    spoken = plan.model_copy(
        update={"prompt": "x", "prompt_tokens": None, "context_tokens": context}
    )
    engine = Completion(spoken, where.binaries[PROGRAM], model)
    with leased_board(where, progress):
        need = with_known_memory(where, engine, found, progress).memory
    # What cannot run need not be measured.
    first = expected(plan, model, gives, None, need=need)
    if first.verdict == "cannot run":
        return first
    notes: tuple[PredictionNote, ...] = ()
    compute: Compute | None
    try:
        compute, slice_run = measured_compute(where, model, header, plan, context, progress)
        gives = given_by(board, found.conditions, found.rates, slice_run)
    except (ConnectError, BusyError):
        raise
    except Exception as error:  # noqa: BLE001 - without slices there are still the board's facts
        why = error.message.rstrip(".") if isinstance(error, ArmloadError) else repr(error)
        notes = (note("slices failed", subject=board.name, reason=why),)
        compute = _roofline(board, model, gives)
    hits = measured_hits(board.name, model)
    found_out = expected(plan, model, gives, compute, need=need, hits=hits)
    return found_out.model_copy(update={"notes": (*notes, *found_out.notes)})


def predict_without_runs(where: Session, model: Model, header: Header, plan: Plan) -> Prediction:
    """Predict a run on a board that answers, from what is known of it already.

    Raises:
        UsageError: the plan does not suit the model.
    """
    board, found = where.connection.board, where.found
    known = known_compute(where, model, header, plan, context_tokens(plan, model))
    compute, slice_run = known or (None, None)
    gives = given_by(board, found.conditions, found.rates, slice_run)
    hits = measured_hits(board.name, model)
    return expected(plan, model, gives, compute or _roofline(board, model, gives), hits=hits)


def predict_from_facts(board: Board, model: Model, plan: Plan) -> Prediction:
    """Predict a run on a board that does not answer.

    Raises:
        UsageError: the plan does not suit the model.
    """
    facts = board.facts
    memory = facts.memory and BoardMemory(
        total_bytes=facts.memory, available_bytes=round(ASSUMED_AVAILABLE * facts.memory)
    )
    gives = BoardGives(
        memory=memory or None,
        storage=_rate(None, facts.storage_read_bytes_per_s),
        memory_rate=_rate(None, facts.memory_bytes_per_s),
    )
    found = expected(plan, model, gives, _roofline(board, model, gives))
    notes = [
        note("memory assumed", reason=f"{ASSUMED_AVAILABLE:.0%}")
        if memory
        else note("memory unknown")
    ]
    if model.unlike:
        notes.append(note("not estimated", subject=model.name, reason=model.unlike))
    return found.model_copy(update={"notes": (*notes, *found.notes)})


_BEFORE_GUESSES = "That is one pass over the weights; accepted guesses make it several tokens."


def foresight(where: Session, engine: Completion, progress: Progress) -> Foresee:
    """Return what ``foresight_of`` does for a continuation."""
    return foresight_of(where, engine.model, engine.plan, progress)


def foresight_of(where: Session, model: Model, plan: Plan, progress: Progress) -> Foresee:
    """Return what predicts a run before its model is copied, and warns or refuses.

    Slices that were timed before are used; none is run. What is called raises BoardError where
    not even the KV cache fits, where its size is known exactly. Of a run that guesses tokens,
    memory alone can be foreseen.

    Args:
        plan: of one continuation.
    """
    board = where.connection.board

    def foresee(found: Probe, need: MemoryNeed | None) -> Prediction | None:
        within = within_group(found.conditions)
        if plan.speculate is None:
            gives, compute = known_there(where, found, model, plan)
        else:
            gives = given_by(board, found.conditions, found.rates)
            compute = _roofline(board, model, gives)
        hits = measured_hits(board.name, model)
        prediction = expected(plan, model, gives, compute, need=need, hits=hits)
        if prediction.verdict == "cannot run":
            why = refusal(model.name, board.name, prediction, within)
            raise BoardError(why, remedy(prediction))
        if words := said_beforehand(model.name, board.name, prediction, within):
            progress.say(words if plan.speculate is None else f"{words} {_BEFORE_GUESSES}")
        return prediction if plan.speculate is None else None

    return foresee


def known_there(
    where: Session, found: Probe, model: Model, plan: Plan
) -> tuple[BoardGives, Compute | None]:
    """Return what a board gives and what computing takes, without a run for it.

    Both as measured there before, be it in an earlier boot, or as the board's file says.
    """
    board, (_, header) = where.connection.board, read_outline(model.path)
    known = known_compute(where, model, header, plan, context_tokens(plan, model))
    compute, slice_run = known or (None, None)
    gives = given_by(board, found.conditions, found.rates, slice_run)
    return gives, compute or _roofline(board, model, gives)


def expected(
    plan: Plan,
    model: Model,
    gives: BoardGives,
    compute: Compute | None,
    *,
    need: MemoryNeed | None = None,
    hits: MeasuredHits | None = None,
) -> Prediction:
    """Predict a run of a plan from what a board gives.

    Args:
        need: of memory, where a second model is part of it.
        hits: of streamed experts, in an earlier run.
    """
    return predict(
        need or memory_need(plan, model),
        gives,
        compute,
        prompt_tokens=_prompt_tokens(plan),
        streaming=_streaming(plan),
        resident_bytes=plan.resident_bytes,
        hits=hits,
    )


def given_by(board: Board, now: Conditions, rates: Rates, run: Run | None = None) -> BoardGives:
    """Return what a board gives: as measured in this boot, in a run, or as declared.

    Args:
        run: one on that board, which measured the rates, too.
    """
    storage, memory = rates.storage_read_bytes_per_s, rates.memory_bytes_per_s
    if run is not None:
        if run.board.storage_read_rate == "measured":
            storage = storage or run.board.storage_read_bytes_per_s
        if run.board.memory_rate == "measured":
            memory = memory or run.board.memory_bytes_per_s
    return BoardGives(
        memory=BoardMemory.of(now),
        storage=_rate(storage, board.facts.storage_read_bytes_per_s),
        memory_rate=_rate(memory, board.facts.memory_bytes_per_s),
    )


def _rate(measured: int | None, declared: int | None) -> Rate | None:
    if measured:
        return Rate(bytes_per_s=measured, kind="measured")
    return Rate(bytes_per_s=declared, kind="declared") if declared else None


def _roofline(board: Board, model: Model, gives: BoardGives) -> Compute | None:
    memory = gives.memory_rate
    return from_facts(
        model,
        clusters=board.facts.clusters,
        memory_bytes_per_s=memory.bytes_per_s if memory else None,
    )


def _prompt_tokens(plan: Plan) -> int:
    # A word of a text is a token and a bit, and has some five bytes.
    return plan.prompt_tokens or max(1, len(plan.prompt.encode()) // 4)


def _streaming(plan: Plan) -> Streaming:
    if plan.weights == "mapped":
        return "never"
    if plan.weights == "streamed" or plan.resident_bytes is not None:
        return "always"
    return "if needed"
