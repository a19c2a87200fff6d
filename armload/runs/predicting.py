"""Predicting a run: from the board that is there, or from what its file says."""

from __future__ import annotations

import math
from collections.abc import Sequence

from armload.analysis.compute import Compute
from armload.analysis.prediction import BoardGives, MeasuredHits, Rate, Streaming, predict
from armload.analysis.roofline import from_facts
from armload.analysis.shares import MemberGives
from armload.analysis.wording.prediction_notes import note
from armload.analysis.wording.predictions import refusal, remedy, said_beforehand
from armload.boards.board import Board, LocalReach, VirtualReach
from armload.boards.conditions import Conditions, within_group
from armload.boards.failures import SlowCommandError
from armload.boards.probe import Probe, clusters_of
from armload.boards.rates import Rates
from armload.boards.specs import DeclaredSpecs
from armload.core.errors import ArmloadError, BoardError, BusyError, ConnectError
from armload.core.progress import Progress
from armload.engines.completion import PROGRAM, Completion, memory_need
from armload.engines.engine import MemoryNeed
from armload.engines.llama_cpp import context_tokens
from armload.engines.plan import Plan
from armload.engines.prediction import Expected, MemoryParts, Prediction, PredictionNote
from armload.engines.scorer import Scoring
from armload.engines.spread import Spread
from armload.engines.weights import BoardMemory
from armload.models.model import Model
from armload.models.whole_header import WholeHeader
from armload.runs.footprint import with_known_memory
from armload.runs.hits import measured_hits
from armload.runs.operations import known_compute, measured_compute, mid_depth
from armload.runs.session import Foresee, ReachedBoard, Session, leased_board

ASSUMED_AVAILABLE = 0.8
"""Share of the installed memory, where the board cannot be asked."""


def predict_there(
    where: Session,
    model: Model,
    header: WholeHeader,
    plan: Plan,
    progress: Progress,
    *,
    hits: MeasuredHits | None = None,
) -> Prediction:
    """Predict a run on a board that answers; what the model computes is timed there first.

    Args:
        header: of the model, whose file may be missing.
        hits: of streamed experts, in an earlier run.

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
    notes: tuple[PredictionNote, ...] = ()
    compute: Compute | None
    with leased_board(where, progress):
        need = with_known_memory(where, engine, found, progress, header=header).memory
        # What cannot run need not be measured.
        first = expected(plan, model, gives, None, need=need)
        if first.verdict == "cannot run":
            return first
        try:
            compute, rates = measured_compute(where, model, header, plan, progress)
            gives = given_by(board, found.conditions, found.rates, rates)
        except Exception as error:
            if isinstance(error, ConnectError | BusyError) and not isinstance(
                error, SlowCommandError
            ):
                raise
            why = error.message.rstrip(".") if isinstance(error, ArmloadError) else repr(error)
            notes = (note("operations failed", subject=board.name, reason=why),)
            compute = _roofline(_facts(board, found), model, gives, plan)
    found_out = expected(plan, model, gives, compute, need=need, hits=hits)
    return on_board(board, found_out.model_copy(update={"notes": (*notes, *found_out.notes)}))


def on_board(board: Board, found: Prediction) -> Prediction:
    """Note that times of an emulated board say nothing of a real one."""
    if not isinstance(board.reach, VirtualReach) or found.token_s is None:
        return found
    return found.model_copy(update={"notes": (note("emulated", subject=board.name), *found.notes)})


def predict_without_runs(where: ReachedBoard, model: Model, plan: Plan) -> Prediction:
    """Predict a run on a board that answers, from what its file and earlier runs say of it.

    Raises:
        UsageError: the plan does not suit the model.
    """
    board, found = where.main_board, where.found
    gives = given_by(board, found.conditions, found.rates)
    compute = _roofline(_facts(board, found), model, gives, plan)
    hits = measured_hits(board.name, model)
    return on_board(board, expected(plan, model, gives, compute, hits=hits))


def predict_from_facts(facts: DeclaredSpecs, model: Model, plan: Plan) -> Prediction:
    """Predict a run on a board that does not answer, or that nobody has.

    Raises:
        UsageError: the plan does not suit the model.
    """
    memory = facts.memory and BoardMemory(
        total_bytes=facts.memory, available_bytes=round(ASSUMED_AVAILABLE * facts.memory)
    )
    gives = BoardGives(
        memory=memory or None,
        storage=_rate(None, facts.storage_read_bytes_per_s),
        memory_rate=_rate(None, facts.memory_bytes_per_s),
    )
    found = expected(plan, model, gives, _roofline(facts, model, gives, plan))
    notes = [
        note("memory assumed", reason=f"{ASSUMED_AVAILABLE:.0%}")
        if memory
        else note("memory unknown")
    ]
    return found.model_copy(update={"notes": (*notes, *found.notes)})


def predict_group(
    where: Session,
    spread: Spread | None,
    model: Model,
    plan: Plan,
    members: Sequence[MemberGives],
) -> Prediction:
    """Predict a run on a group, from what is known of each member.

    Args:
        spread: over the members; none where the model does not fit.
        members: what each gives.

    Raises:
        UsageError: the plan does not suit the model.
    """
    need, boards = memory_need(plan, model), (where, *where.helpers)
    memory = [BoardMemory.of(each.found.conditions) for each in boards]
    taken_bytes = sum(share.memory_bytes for share in spread.shares) if spread else 0
    beside_bytes = taken_bytes - need.weights_bytes - need.kv_bytes
    base = Prediction(
        verdict="fits" if spread else "cannot run",
        context_tokens=need.context_tokens,
        prompt_tokens=_prompt_tokens(plan),
        memory=MemoryParts(
            weights_bytes=need.weights_bytes,
            kv_bytes=need.kv_bytes,
            program_bytes=beside_bytes if spread else len(boards) * need.program_bytes,
            window_bytes=0,
            reserve_bytes=sum(each.reserve_bytes for each in memory),
            available_bytes=sum(each.available_bytes for each in memory),
        ),
        notes=(note("group"),),
    )
    computes = []
    for each, its in zip(boards, members, strict=True):
        rate = _rate(its.memory_bytes_per_s, None)
        gives = given_by(each.connection.board, each.found.conditions, each.found.rates)
        gives = gives.model_copy(update={"memory_rate": rate})
        known = known_compute(each, model, plan)
        facts = _facts(each.connection.board, each.found)
        computes.append(known[0] if known else _roofline(facts, model, gives, plan))
    if spread is None or any(each is None for each in computes):
        return base
    whole = sum(share.weights_bytes for share in spread.shares)
    token_s = Expected.nothing()
    for compute, share in zip(computes, spread.shares, strict=True):
        if compute is not None:
            token_s += compute.token_s * (share.weights_bytes / whole)
    return base.model_copy(update={"token_s": token_s, "compute": "roofline"})


_BEFORE_GUESSES = (
    "That is the time of one pass over the weights, which produces several tokens when guesses are "
    "accepted."
)


def foresight(where: ReachedBoard, engine: Completion | Scoring, progress: Progress) -> Foresee:
    """Return what ``foresight_of`` does for one continuation of an engine."""
    foresee = foresight_of(where, engine.model, engine.continuation, progress)

    def refuse(found: Probe, need: MemoryNeed | None) -> None:
        foresee(found, need)

    return foresee if engine.keeps_forecast else refuse


def foresight_of(where: ReachedBoard, model: Model, plan: Plan, progress: Progress) -> Foresee:
    """Return what predicts a run before its model is copied, and warns or refuses.

    What was timed before is used; nothing is timed. What is called raises BoardError where
    not even the KV cache fits, where its size is known exactly. Of a run that guesses tokens,
    memory alone can be foreseen.

    Args:
        plan: of one continuation.
    """
    board = where.main_board

    def foresee(found: Probe, need: MemoryNeed | None) -> Prediction | None:
        within = within_group(found.conditions)
        if plan.speculate is None:
            gives, compute = known_there(where, found, model, plan)
        else:
            gives = given_by(board, found.conditions, found.rates)
            compute = _roofline(_facts(board, found), model, gives, plan)
        hits = measured_hits(board.name, model)
        prediction = on_board(board, expected(plan, model, gives, compute, need=need, hits=hits))
        if prediction.verdict == "cannot run":
            why = refusal(model.name, board.name, prediction, within)
            raise BoardError(why, remedy(prediction))
        if words := said_beforehand(model.name, board.name, prediction, within):
            progress.say(words if plan.speculate is None else f"{words} {_BEFORE_GUESSES}")
        return prediction if plan.speculate is None else None

    return foresee


def known_there(
    where: ReachedBoard, found: Probe, model: Model, plan: Plan
) -> tuple[BoardGives, Compute | None]:
    """Return what a board gives and what computing takes, without a run for it.

    Both as measured there before, be it in an earlier boot, or as the board's file says.
    """
    board = where.main_board
    known = known_compute(where, model, plan)
    compute, rates = known or (None, None)
    gives = given_by(board, found.conditions, found.rates, rates)
    return gives, compute or _roofline(_facts(board, found), model, gives, plan)


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


def given_by(
    board: Board, now: Conditions, rates: Rates, before: Rates | None = None
) -> BoardGives:
    """Return what a board gives: as measured in this boot, before, or as declared.

    Args:
        before: measured when the model's operations were timed there.
    """
    storage, memory = rates.storage_read_bytes_per_s, rates.memory_bytes_per_s
    if before is not None:
        storage = storage or before.storage_read_bytes_per_s
        memory = memory or before.memory_bytes_per_s
    return BoardGives(
        memory=BoardMemory.of(now),
        storage=_rate(storage, board.facts.storage_read_bytes_per_s),
        memory_rate=_rate(memory, board.facts.memory_bytes_per_s),
    )


def _rate(measured: int | None, declared: int | None) -> Rate | None:
    if measured:
        return Rate(bytes_per_s=measured, kind="measured")
    return Rate(bytes_per_s=declared, kind="declared") if declared else None


def _facts(board: Board, found: Probe) -> DeclaredSpecs:
    """Return a board's facts; its cores as it shows them where they are not declared."""
    reach, facts = board.reach, board.facts
    if isinstance(reach, VirtualReach):  # emulated cores are as fast as this machine lets them be
        return facts.model_copy(update={"clusters": ()})
    is_emulated = isinstance(reach, LocalReach) and bool(reach.launcher)
    if facts.clusters or found.machine != "aarch64" or is_emulated:
        return facts
    return facts.model_copy(update={"clusters": clusters_of(found)})


def _roofline(facts: DeclaredSpecs, model: Model, gives: BoardGives, plan: Plan) -> Compute | None:
    if gives.memory_rate is not None:
        facts = facts.model_copy(update={"memory_bytes_per_s": gives.memory_rate.bytes_per_s})
    cache_bytes = memory_need(plan, model).kv_cache.size_bytes(math.ceil(mid_depth(model, plan)), 1)
    return from_facts(model, facts, threads=plan.threads, cache_bytes=cache_bytes)


def _prompt_tokens(plan: Plan) -> int:
    # A word of a text is a token and a bit, and has some five bytes.
    return plan.prompt_tokens or max(1, len(plan.prompt.encode()) // 4)


def _streaming(plan: Plan) -> Streaming:
    if plan.weights == "mapped":
        return "never"
    if plan.weights == "streamed" or plan.resident_bytes is not None:
        return "always"
    return "if needed"
