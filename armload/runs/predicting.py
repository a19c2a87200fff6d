"""Predicting a run: from the board that is there, or from what its file says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from armload.analysis.board_resources import BoardResources, MeasuredHits
from armload.analysis.compute import Compute, with_adapters
from armload.analysis.fitted import forecast_notice, refusal, remedy
from armload.analysis.prediction import Streaming, predict
from armload.analysis.prediction_notes import note
from armload.analysis.run import Run
from armload.analysis.streaming import streamed_weights
from armload.boards.board import Board, VirtualReach
from armload.boards.conditions import within_group
from armload.boards.group import Group
from armload.boards.probe import Probe
from armload.boards.specs import DeclaredSpecs
from armload.build.binary import Binary
from armload.build.programs import DLLAMA
from armload.build.target import load_target
from armload.core.errors import ArmloadError, BoardError, UsageError
from armload.core.progress import Progress
from armload.engines.completion import PROGRAM, Completion, memory_need, memory_need_on
from armload.engines.embedding import embedding_need, one_text
from armload.engines.engine import Forecastable, MemoryNeed
from armload.engines.llama_cpp import context_tokens, likely_prompt_tokens
from armload.engines.media import MediaNeed
from armload.engines.plan import Plan
from armload.engines.prediction import (
    Alternative,
    Prediction,
    PredictionNote,
    PredictionNoteKind,
)
from armload.engines.spread import LinkRates, Spread
from armload.models.distributed_llama import DistributedModel, distributed_model
from armload.models.gguf import read_outline
from armload.models.model import Model
from armload.models.whole_header import WholeHeader
from armload.runs import store
from armload.runs.footprint import with_known_memory
from armload.runs.forecast_members import ForecastMember, reached_members
from armload.runs.group_forecast import GroupForecaster
from armload.runs.here import footprint_here
from armload.runs.links import measured_links
from armload.runs.media import (
    EncoderTimer,
    MediaQuestion,
    encoder_of,
    known_encoder,
    need_with,
    plan_with,
    question_of,
    with_media,
)
from armload.runs.operations import found_or_note, known_compute, measured_compute
from armload.runs.resources import (
    ASSUMED_AVAILABLE,
    declared_resources,
    facts_of,
    member_resources,
    resources_of_board,
    roofline,
)
from armload.runs.session import (
    Predictor,
    ReachedBoard,
    Session,
    built,
    leased_board,
    leased_boards,
)
from armload.runs.spreading import measured_resources
from armload.runs.texts import with_texts

_MOST_READ = 30
_LEAST_TOKENS = 16
"""Fewer mostly fill the slots."""


def predict_there(
    where: Session,
    model: Model,
    header: WholeHeader,
    plan: Plan,
    progress: Progress,
    *,
    hits: MeasuredHits | None = None,
    media: MediaQuestion | None = None,
) -> Prediction:
    """Predict a run on a board that answers; what the model computes is timed there first.

    On a group, its members are measured, and it is predicted how the model would be divided.

    Args:
        header: of the model, whose file may be missing.
        hits: of streamed experts, in an earlier run.
        media: an image or a sound, whose tokens are in the plan's prompt; on no group.
    """
    if where.group is not None:
        return _predict_on_group(where, where.group, model, header, plan, progress)
    board, found = where.connection.board, where.found
    resources = resources_of_board(board, found.conditions, found.rates)
    embedded = plan
    if plan.embed is not None:
        plan = one_text(plan, model)
    context = context_tokens(plan, model)
    # Memory does not depend on the text, and a header may come without a vocabulary.
    spoken = plan.model_copy(
        update={
            "prompt": "x",
            "prompt_tokens": None,
            "depth_tokens": 0,
            "context_tokens": context,
        }
    )
    engine = Completion(spoken, where.binaries[PROGRAM], model)
    notes: tuple[PredictionNote, ...] = ()
    compute: Compute | None
    encoder: EncoderTimer | PredictionNote | None = None
    seen = None
    with leased_board(where, progress, "timing operations"):
        if media is not None:
            encoder = encoder_of(where, media, plan, progress)
            seen = encoder.need if isinstance(encoder, EncoderTimer) else media.need
        if embedded.embed is not None:
            need = embedding_need(embedded, model)
        else:
            memory = with_known_memory(where, engine, found, progress, header=header).memory
            need = need_with(memory or memory_need(plan, model), seen)
        # What cannot run need not be measured.
        first = expected(plan, model, resources, None, need=need)
        if first.verdict == "cannot run":
            return first
        timed = found_or_note(lambda: measured_compute(where, model, header, plan, progress), where)
        if isinstance(timed, PredictionNote):
            notes = (timed,)
            compute = roofline(facts_of(board, found), model, resources, plan)
        else:
            compute, rates = timed
            resources = resources_of_board(board, found.conditions, found.rates, rates)
        encoder_s = (
            found_or_note(encoder.seconds, where, "encoder not timed")
            if isinstance(encoder, EncoderTimer)
            else encoder
        )
    if isinstance(encoder_s, PredictionNote):
        notes = (*notes, encoder_s)
    found_out = expected(plan, model, resources, compute, need=need, hits=hits)
    found_out = with_texts(found_out, embedded, compute)
    facts = facts_of(board, found)
    found_out = with_media(
        *(found_out, seen, facts, resources),
        threads=plan.threads,
        timed=None if isinstance(encoder_s, PredictionNote) else encoder_s,
        compute=compute,
        estimated=roofline(facts, model, resources, plan) if seen else None,
    )
    return adjusted_for_emulation(
        board, found_out.model_copy(update={"notes": (*notes, *found_out.notes)})
    )


def _predict_on_group(
    where: Session,
    group: Group,
    model: Model,
    header: WholeHeader,
    plan: Plan,
    progress: Progress,
) -> Prediction:
    known = [member_resources(each, each.found.rates) for each in where.members]
    untimed = group_prediction(group, model, plan, reached_members(where, known, progress))
    if untimed.division is not None and untimed.division.refused:
        return untimed  # which is a matter of memory and of the model, not of speed
    with leased_boards(where, progress, "timing operations"):
        resources = measured_resources(where, progress)
        links = measured_links(where, plan.threads, progress)
        program = _node_program(where, model, len(resources), progress)
        members = reached_members(where, resources, progress, header, program)
        return group_prediction(group, model, plan, members, links)


def _node_program(where: Session, model: Model, nodes: int, progress: Progress) -> Binary | None:
    """Return distributed-llama's program; none where boards cannot share the model, or without."""
    try:
        _shared(model).check_nodes(nodes)
    except UsageError:
        return None
    try:
        return built(where.request, (DLLAMA,), progress)[DLLAMA]
    except ArmloadError as error:
        progress.say(f"Nodes of distributed-llama are not timed: {error.message}")
        return None


def _shared(model: Model) -> DistributedModel:
    """Return what distributed-llama makes of a model.

    The divisors of rotary positions, which are among the weights, take no time.

    Raises:
        UsageError: it cannot run it.
    """
    return distributed_model(model.path, read_outline(model.path)[1], ())


def group_prediction(
    group: Group,
    model: Model,
    plan: Plan,
    members: Sequence[ForecastMember],
    links: Sequence[LinkRates] = (),
) -> Prediction:
    """Predict how a model would be divided between boards, and beside it, other ways to run it.

    Args:
        members, links: as for ``GroupForecaster``.
    """
    forecaster = GroupForecaster(group, model, plan, members, links)
    found = forecaster.predict_division()
    if found.division is None:
        return found
    alone = (_alone(each, model, plan, members[0]) for each in ("mapped", "streamed"))
    division = found.division.model_copy(
        update={"alternatives": (*alone, _with_distributed_llama(forecaster, model))}
    )
    return found.model_copy(update={"division": division})


def _alone(
    weights: Literal["mapped", "streamed"], model: Model, plan: Plan, first: ForecastMember
) -> Alternative:
    own = plan.model_copy(update={"weights": weights})
    compute, _ = first.compute(model, own, is_server=False)
    found = expected(own, model, first.by_itself, compute)
    name = first.resources.board
    return Alternative(
        kind="alone, mapped" if weights == "mapped" else "alone, streamed",
        token_s=None if found.verdict == "cannot run" else found.token_s,
        refused=refusal(model.name, name, found) if found.verdict == "cannot run" else "",
    )


def _with_distributed_llama(forecaster: GroupForecaster, model: Model) -> Alternative:
    try:
        token_s = forecaster.distributed_s(_shared(model))
    except (UsageError, BoardError) as error:
        return Alternative(kind="dllama", refused=error.message.removeprefix("--engine dllama: "))
    return Alternative(kind="dllama", token_s=token_s)


def adjusted_for_emulation(board: Board, found: Prediction) -> Prediction:
    """Note that times of an emulated board say nothing of a real one; drop estimated ones.

    An emulated core is 5 to 80 times as slow as the facts of a real one tell. Only operations that
    were timed there, or its storage, predict its speed.
    """
    if not isinstance(board.reach, VirtualReach) or found.verdict in ("cannot run", "unknown"):
        return found
    if found.media is not None and found.media.compute != "operations":
        unknown = found.media.model_copy(update={"encoder_s": None, "compute": "unknown"})
        found = found.model_copy(update={"media": unknown, "ttft_s": None})
    if found.compute != "operations" and found.bottleneck != "storage":
        times = dict.fromkeys(("token_s", "ttft_s", "load_s"))
        notes = tuple(each for each in found.notes if each.kind not in _OF_ESTIMATES)
        found = found.model_copy(update={**times, "bottleneck": "unknown", "notes": notes})
        kind: PredictionNoteKind = "emulated, not timed"
    elif found.token_s is None:
        return found
    else:
        kind = "emulated"
    return found.model_copy(update={"notes": (note(kind, subject=board.name), *found.notes)})


_OF_ESTIMATES = (
    "estimated from facts",
    "memory rate unknown",
    "cores only",
    "storage rate unknown",
)
"""Notes on times that are estimated from facts."""


def predict_without_runs(
    where: ReachedBoard, model: Model, plan: Plan, media: MediaNeed | None = None
) -> Prediction:
    """Predict a run on a board that answers, from what its file and earlier runs say of it."""
    board, found = where.main_board, where.found
    resources = resources_of_board(board, found.conditions, found.rates)
    embedded = plan
    if plan.embed is not None:
        plan = one_text(plan, model)
    compute = roofline(facts_of(board, found), model, resources, plan)
    hits = measured_hits(board.name, model)
    need = need_with(_need_on(board.target, resources, embedded, model), media)
    found_out = expected(plan, model, resources, compute, need=need, hits=hits)
    found_out = with_texts(found_out, embedded, compute)
    facts = facts_of(board, found)
    found_out = with_media(found_out, media, facts, resources, threads=plan.threads)
    if compute is None:
        notes = (*found_out.notes, note("memory rate unknown"))
        found_out = found_out.model_copy(update={"notes": notes})
    return adjusted_for_emulation(board, found_out)


def predict_from_facts(
    facts: DeclaredSpecs,
    target: str,
    model: Model,
    plan: Plan,
    header: WholeHeader | None = None,
    media: MediaNeed | None = None,
) -> Prediction:
    """Predict a run on a board that does not answer, or that nobody has.

    Args:
        target: that programs for it are built for.
        header: of the model; with it, llama.cpp itself says what memory it takes, where it can run
            on this machine.
    """
    resources = declared_resources(facts)
    embedded = plan
    if plan.embed is not None:
        plan = one_text(plan, model)
    compute = roofline(facts, model, resources, plan)
    need = need_with(_need_on(target, resources, embedded, model, header), media)
    found = expected(plan, model, resources, compute, need=need)
    found = with_texts(found, embedded, compute)
    found = with_media(found, media, facts, resources, threads=plan.threads)
    notes = [
        note("memory assumed", reason=f"{ASSUMED_AVAILABLE:.0%}")
        if resources.memory
        else note("memory unknown")
    ]
    return found.model_copy(update={"notes": (*notes, *found.notes)})


def _need_on(
    target: str,
    resources: BoardResources,
    plan: Plan,
    model: Model,
    header: WholeHeader | None = None,
) -> MemoryNeed:
    """Return what a run takes of a board's memory: as llama.cpp says, or else the header."""
    if plan.embed is not None:
        return embedding_need(plan, model)
    need = memory_need(plan, model)
    copied_bytes = 0
    if resources.memory is not None:
        available_bytes = resources.memory.available_bytes
        on_board = memory_need_on(load_target(target), available_bytes, plan, model)
        copied_bytes = on_board.program_bytes - need.program_bytes
        need = on_board
    footprint = footprint_here(model, header, plan) if header is not None else None
    if footprint is None:
        return need
    return need.exactly(footprint, copied_bytes + model.adapter_bytes)


_BEFORE_GUESSES = (
    "That is the time of one pass over the weights, which produces several tokens when drafts are "
    "accepted."
)


def predictor_of(where: Session, wanted: Forecastable, progress: Progress) -> Predictor:
    """Return what predicts a run of a session, on its board or on all members of its group.

    What is called does what ``predict_and_warn`` does; a group is neither warned of nor refused.
    """

    def predict_run(
        found: Probe, need: MemoryNeed | None, spread: Spread | None
    ) -> Prediction | None:
        model, plan = wanted.model, wanted.plan
        if spread is None or where.group is None:
            if wanted.nodes is not None:
                return None
            media = question_of(wanted)
            prediction = predict_and_warn(where, model, plan, found, need, progress, media=media)
        else:
            resources = [member_resources(each, each.found.rates) for each in where.members]
            members = reached_members(where, resources, progress, node_program=wanted.node_program)
            forecaster = GroupForecaster(where.group, model, plan, members, spread.links)
            if wanted.nodes is not None:
                return forecaster.predict_nodes(wanted.nodes)
            prediction = forecaster.predict(spread)
        return prediction if wanted.is_kept else None

    return predict_run


def predict_and_warn(
    where: ReachedBoard,
    model: Model,
    plan: Plan,
    found: Probe,
    need: MemoryNeed | None,
    progress: Progress,
    *,
    media: MediaQuestion | None = None,
) -> Prediction | None:
    """Predict a run before its model is copied, and warn or refuse.

    What was timed before is used; nothing is timed. Of a run that guesses tokens, or computes on
    a GPU, memory alone can be predicted.

    Args:
        plan: of one continuation.
        found: the board's state now.
        need: of memory; none for what the plan needs.
        media: an image or a sound before the prompt.

    Returns:
        None where there is only something to refuse or to warn of.
    """
    board, within = where.main_board, within_group(found.conditions)
    seen, encoder_s = known_encoder(where, media, plan) if media else (None, None)
    plan = plan_with(plan, seen)
    if plan.speculate is None and not plan.on_gpu:
        resources, compute = known_there(where, found, model, plan)
    else:
        resources = resources_of_board(board, found.conditions, found.rates)
        compute = roofline(facts_of(board, found), model, resources, plan)
    hits = measured_hits(board.name, model)
    need = need_with(need or memory_need(plan, model), seen)
    found_out = expected(plan, model, resources, compute, need=need, hits=hits)
    found_out = with_media(
        *(found_out, seen, facts_of(board, found), resources),
        threads=plan.threads,
        timed=encoder_s,
        compute=compute,
        estimated=roofline(facts_of(board, found), model, resources, plan) if seen else None,
    )
    prediction = adjusted_for_emulation(board, found_out)
    if prediction.verdict == "cannot run":
        why = refusal(model.name, board.name, prediction, within)
        raise BoardError(why, remedy(prediction))
    if words := forecast_notice(model.name, board.name, prediction, within):
        progress.say(words if plan.speculate is None else f"{words} {_BEFORE_GUESSES}")
    return prediction if plan.speculate is None and not plan.on_gpu else None


def known_there(
    where: ReachedBoard, found: Probe, model: Model, plan: Plan
) -> tuple[BoardResources, Compute | None]:
    """Return what a board gives and what computing takes, without a run for it.

    Both as measured there before, be it in an earlier boot, or as the board's file says.
    """
    board = where.main_board
    known = known_compute(where, model, plan)
    compute, rates = known or (None, None)
    resources = resources_of_board(board, found.conditions, found.rates, rates)
    return resources, compute or roofline(facts_of(board, found), model, resources, plan)


def expected(
    plan: Plan,
    model: Model,
    resources: BoardResources,
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
        resources,
        compute and with_adapters(compute, model),
        prompt_tokens=likely_prompt_tokens(plan),
        streaming=_streaming(plan),
        resident_bytes=plan.resident_bytes,
        hits=hits,
    )


def _streaming(plan: Plan) -> Streaming:
    if plan.weights == "mapped":
        return "never"
    if plan.weights == "streamed" or plan.resident_bytes is not None:
        return "always"
    return "if needed"


def measured_hits(board: str, model: Model) -> MeasuredHits | None:
    """Return what the newest run measured that streamed this model there; none without one."""
    if not model.expert_bytes:
        return None
    found = (_hits(run, model) for run in store.latest_on(board, most=_MOST_READ))
    return next(filter(None, found), None)


def _hits(run: Run, model: Model) -> MeasuredHits | None:
    weights, reads = streamed_weights(run.trace), run.summary.experts
    is_same = (run.model.name, run.model.size_bytes) == (model.name, model.size_bytes)
    if not is_same or weights is None or reads is None:
        return None
    if (run.summary.decode_tokens or 0) < _LEAST_TOKENS:
        return None
    return MeasuredHits(
        hit_rate=reads.hit_rate, slot_share=weights.expert_slot_bytes / weights.expert_bytes
    )
