"""Searching the best settings of a model on a board, from the space to the plan file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from armload.boards.board import load_board
from armload.boards.power import EnergyBasis, place_of
from armload.build.builder import is_compiled
from armload.build.source import engine_of
from armload.build.target import load_target
from armload.core.errors import UsageError
from armload.core.progress import Progress
from armload.engines.completion import memory_need
from armload.engines.llama_cpp import NO_REPACK, offers
from armload.engines.plan import NGRAM
from armload.engines.scorer import SCORER
from armload.engines.server import plan_for, serving_need
from armload.engines.speculation import SPECULATING_PROGRAM
from armload.engines.weights import BoardMemory, are_streamed
from armload.models.find import model_called
from armload.models.model import Model
from armload.runs.reach import ConnectedBoards, EngineBoard
from armload.runs.request import Request
from armload.runs.session import ReachedBoard
from armload.tuning.checks import CorrectAnswers, DivergenceCheck
from armload.tuning.choices import (
    SEARCHED,
    AvailableChoices,
    core_sets,
    listed,
    require_feasible,
    space_of,
)
from armload.tuning.continuing import Continuations
from armload.tuning.quality import Check, Judge
from armload.tuning.reach import ConnectedTuningBoard, TuningBoard, TuningReach
from armload.tuning.record import Tuning, TuningFolder, new_tuning
from armload.tuning.request import TuningRequest
from armload.tuning.search import Search
from armload.tuning.searching import Report, Searching
from armload.tuning.serving_load import ServiceLoads
from armload.tuning.settings import check_path, default_path, write_plan
from armload.tuning.space import Setting, Space
from armload.tuning.trial import Measurer

_CONNECTED = ConnectedBoards(ConnectedTuningBoard)


def tune(
    request: Request,
    goal: TuningRequest,
    progress: Progress,
    *,
    output: Path | None,
    reach: TuningReach = _CONNECTED,
    begun: Callable[[TuningFolder], None],
    report: Report,
) -> TuningFolder:
    """Search, confirm what was found, and write it to a plan file.

    What an interrupted command of the same kind has done is not done again, unless
    ``request.new`` says so.

    Args:
        request: where, and with which source.
        output: the plan file; none for one named after board and model.
        reach: how the board is reached.
        begun: is shown the search before its first trial.
        report: called for every trial.
    """
    goal.check()
    board = load_board(request.board)
    if goal.objective == "energy" and board.power is None:
        raise UsageError(
            f"{board.name} has no power meter, which --for energy needs.",
            f"Name one under 'power' in boards/{board.name}.yaml.",
        )
    model = model_called(goal.model, progress)
    goal = goal.for_model(model.context_length)
    path = output or default_path(board.name, model.name)
    check_path(path)
    programs = _programs(goal)
    if goal.max_time_s is not None and not is_compiled(load_target(board.target), programs):
        progress.say(
            f"The search may use {', '.join(programs)}. What is not built yet is built first; "
            "--max-time begins after that."
        )
    with reach.open(request, programs, progress) as there:
        where = there.where
        space = space_of(goal.objective, offer_of(where, model, goal), goal.narrowing)
        measurer = _measurer(there, model, goal, progress)
        require_feasible(space, measurer.prior, str(goal.narrowing or ""))
        tuning = _described(where, model, goal, space)
        tuned = TuningFolder.resume_or_begin(tuning, progress, new=request.new)
        with tuned.locked(progress):
            begun(tuned)
            judge = Judge(
                space.defaults,
                most_rss_bytes=goal.constraints.max_rss_bytes,
                checks=_checks(there, model, goal, space.defaults, progress),
            )
            search = Search(
                space,
                seed=goal.seed,
                most_trials=goal.max_trials,
                rungs=measurer.rungs,
                prior=measurer.prior,
            )
            result = Searching(
                *(tuned, measurer, judge, search, progress),
                max_time_s=goal.max_time_s,
                core_sets=core_sets(where.found.conditions.usual_clusters),
                report=report,
            ).run()
            result = result.model_copy(update={"plan": str(path)})
            write_plan(path, tuned.tuning, result)
            tuned.end(result)
    return tuned


def _programs(goal: TuningRequest) -> tuple[str, ...]:
    programs = [goal.program]
    if "speculate" in SEARCHED[goal.objective]:
        narrowed = listed(goal.narrowing, goal.objective) if goal.narrowing else {}
        if any(narrowed.get("speculate") or (NGRAM,)):
            programs.append(SPECULATING_PROGRAM)
    if goal.constraints.max_kld is not None or goal.constraints.min_accuracy is not None:
        programs.append(SCORER)
    return tuple(programs)


def _measurer(
    board: TuningBoard, model: Model, goal: TuningRequest, progress: Progress
) -> Measurer:
    most = goal.constraints.max_rss_bytes
    if goal.requests is not None:
        return ServiceLoads(board, model, goal.requests, goal.seed, most_rss_bytes=most)
    return Continuations(
        *(board, model, goal.objective, goal.work, progress),
        most_rss_bytes=most,
        new=board.where.request.new,
    )


def _checks(
    board: EngineBoard, model: Model, goal: TuningRequest, defaults: Setting, progress: Progress
) -> list[Check]:
    checks: list[Check] = []
    constraints = goal.constraints
    if constraints.max_kld is not None:
        most, prompts = constraints.max_kld, goal.kld_prompts
        checks.append(DivergenceCheck(board, model, defaults, prompts, most, progress))
    if constraints.min_accuracy is not None:
        wanted = constraints.min_accuracy
        checks.append(CorrectAnswers(board, goal.model, defaults, wanted, progress))
    return checks


def offer_of(where: ReachedBoard, model: Model, goal: TuningRequest) -> AvailableChoices:
    """Return what board, model and program offer a search to choose from."""
    now = where.found.conditions
    program = where.binaries[goal.program].path
    prompt_tokens = 0
    if goal.requests is None:
        (plan,) = goal.work.plans()
        is_streamed = are_streamed(plan, program, memory_need(plan, model), now)
        prompt_tokens = plan.prompt_tokens or len(plan.prompt.encode())
    else:
        usual = plan_for(model)
        is_streamed = are_streamed(usual, program, serving_need(usual, model), now)
    memory = BoardMemory.of(now)
    return AvailableChoices(
        clusters=now.usual_clusters,
        nodes=len(where.found.nodes),
        context_length=model.context_length,
        prompt_tokens=prompt_tokens,
        repacks=offers(program, NO_REPACK) and not is_streamed,
        streamed_bytes=memory.total_bytes - memory.reserve_bytes if is_streamed else None,
    )


def _described(where: ReachedBoard, model: Model, goal: TuningRequest, space: Space) -> Tuning:
    binary = where.binaries[goal.program]
    return new_tuning(
        board=where.main_board.name,
        model=model.name,
        model_sha256=model.sha256,
        model_reference=goal.model,
        engine=f"{binary.program} of {engine_of(binary)}",
        binary_sha256=binary.sha256,
        objective=goal.objective,
        work=goal.described(),
        constraints=goal.constraints,
        space=space,
        seed=goal.seed,
        texts_sha256=goal.texts_sha256(),
        energy_basis=_basis(where) if goal.objective == "energy" else None,
    )


def _basis(where: ReachedBoard) -> EnergyBasis | None:
    meter = where.main_board.power
    if meter is None:
        return None
    return EnergyBasis(sees=place_of(meter), subtracts_idle=where.request.subtract_idle)
