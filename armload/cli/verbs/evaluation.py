"""``eval`` and ``tradeoff``: how often a model is right, and how long that takes on a board."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Annotated

from armload.cli.evaluation_options import (
    DEMO_TIME_S,
    LOGITS,
    SIMILARITY,
    USUAL_MODELS,
    EvalOptions,
    check_combination,
    has_questions,
)
from armload.cli.options import OutputOptions, models_in
from armload.cli.verb import verb
from armload.core.errors import UsageError
from armload.core.options import Names, Option, Seconds
from armload.core.workspace import evaluations_folder, runs_folder
from armload.engines.plan import Computation, Plan
from armload.engines.service_plan import ScorerOptions
from armload.runs.request import EngineSource

if TYPE_CHECKING:
    from armload.core.progress import Progress
    from armload.evaluation.program import ProgramRequest
    from armload.report.result import Result


@verb(EvalOptions, name="eval", keeps=True, results=(runs_folder, evaluations_folder))
def evaluate(options: EvalOptions) -> Generator[Result, None, None]:
    """Measure the accuracy of models under token and time budgets.

    Answers are kept: an interrupted evaluation resumes when the command is repeated, and grading
    again needs no board. Without options, a small model is evaluated in two quantisations.
    Example: armload eval --board dayu200 --model a.gguf --task gsm8k --data q.jsonl
    """
    from armload.boards.naming import boards_called
    from armload.cli import terminal
    from armload.core.errors import CombinedError
    from armload.evaluation.harness.evaluating import evaluate_with
    from armload.evaluation.logits.computing import logits_and_reference
    from armload.evaluation.preparing import EvaluationRequest
    from armload.evaluation.scorer_settings import ScorerSettings
    from armload.evaluation.similarity import judge_similarity, read_pairs
    from armload.fleet.reach import boards_reached
    from armload.fleet.sharing import evaluate_on_boards
    from armload.report.evaluation.document import harness_view
    from armload.report.evaluation.result import (
        EvaluationResult,
        LogitsResult,
        accuracy_note,
        missing_line,
        regraded,
    )
    from armload.report.evaluation.similarity import SimilarityResult
    from armload.report.result import as_result
    from armload.runs.request import Request

    options = check_combination(options)
    if options.regrade:
        yield regraded(options.regrade, options.grader)
        return
    progress = terminal.progress()
    boards = boards_called(options.board)
    request = options.part(Request).model_copy(update={"board": boards[0]})
    asked = EvaluationRequest(
        boards=boards,
        models=()
        if options.command
        else models_in(request, options.model or USUAL_MODELS, options.type),
        program=_program(options, progress),
        task=options.task,
        data=options.data,
        prompts=options.prompt,
        budgets=options.budget,
        tell=options.tell_budget,
        conclude=options.conclude,
        template=options.template,
        limit=options.limit,
        grader="".join(options.grader),
        parallel=options.parallel,
        computed=tuple(
            f"{field}={getattr(options, field)}"
            for field in (
                "kv_type",
                "flash_attention",
                "context_tokens",
                *EngineSource.model_fields,
            )
            if field != "on" and field in options.model_fields_set
        ),
        adapters=options.adapters,
        mmproj=options.mmproj or "",
        image_max_tokens=options.image_max_tokens,
    )
    settings = ScorerSettings(
        **dict(options.part(ScorerOptions)),
        max_time_s=options.max_time or (None if options.model or options.command else DEMO_TIME_S),
    )
    with boards_reached(options.scheduler, boards, progress) as reach:
        if has_questions(options.task):
            evaluated, errors = evaluate_on_boards(
                *(request, asked, settings, reach, progress), accuracy_note
            )
            result, failed = EvaluationResult.of(evaluated), CombinedError.of_boards(errors)
            if failed is None:
                result.check_answered()
            yield result
            evaluated.note_shown()
            if missing := missing_line(evaluated):
                progress.say(missing)
            if failed is not None:
                raise failed
        elif options.task == SIMILARITY:
            plan = Plan(**dict(options.part(Computation)), pooling=options.pooling)
            pairs = read_pairs(options.data, options.limit)
            name = asked.only_model(SIMILARITY)
            similarity = judge_similarity(request, name, plan, pairs, progress, reach=reach)
            yield SimilarityResult(found=similarity)
        elif options.task != LOGITS:
            found = evaluate_with(request, asked, settings, progress, reach=reach)
            yield as_result(found, harness_view(found))
        else:
            folder, prompts, logits, agreement = logits_and_reference(
                *(request, asked, settings, progress), reference=options.reference, reach=reach
            )
            yield LogitsResult(
                folder=folder,
                logits=logits,
                prompts=prompts,
                found=agreement,
                must_be_close=options.fail_unless_close,
            )


def _program(options: EvalOptions, progress: Progress) -> ProgramRequest | None:
    """Return the program that is to answer; none for armload's scorer."""
    from armload.engines.watched.engine import WatchRequest
    from armload.engines.watched.reader import chosen_reader
    from armload.evaluation.program import ProgramRequest

    if not options.command:
        return None
    reader, about_reader = chosen_reader(options.reader, options.command)
    if about_reader:
        progress.say(about_reader)
    watch = WatchRequest(words=options.command, put=options.put, reader=reader, name=options.name)
    return ProgramRequest(watch=watch, limit_s=options.time_limit_s)


class TradeoffOptions(OutputOptions):
    """Two models of evaluations, and the times at which they are compared."""

    a: Annotated[
        str,
        Option(
            "an evaluation: an id, the beginning or end of one, a folder, or latest; if it has "
            "several models, EVALUATION:MODEL",
            is_argument=True,
            takes="evaluation",
        ),
    ] = "latest"
    b: Annotated[
        str,
        Option(
            "another evaluation, in the same form",
            usual="the second model of A",
            is_argument=True,
            takes="evaluation",
        ),
    ] = ""
    times: Annotated[
        Names,
        Option(
            "take the times from these runs of the two models (a,b, in any form that show "
            "accepts) instead of from the answers",
            "RUNS",
            harmless="anywhere",
        ),
    ] = ()
    deadline: Annotated[
        tuple[Seconds, ...],
        Option("compare at these deadlines, in seconds", "SECONDS", several="commas"),
    ] = ()


@verb(TradeoffOptions)
def tradeoff(options: TradeoffOptions) -> Result:
    """Show which of two models is more accurate in the same time.

    Example: armload tradeoff latest --deadline 30,60
    """
    from armload.evaluation.sides import find_sides
    from armload.evaluation.tradeoff import trade
    from armload.report.evaluation.tradeoff import TradeoffResult
    from armload.runs import store

    sides = find_sides(options.a, options.b)
    if len(options.times) not in (0, 2):
        raise UsageError(
            f"--times {','.join(options.times)}: must name two runs, one of each model.",
            "Example: --times RUN,RUN",
        )
    runs = [store.load(store.find(name)) for name in options.times]
    found = trade(
        *sides,
        runs=(runs[0], runs[1]) if runs else None,
        deadlines_s=options.deadline,
    )
    return TradeoffResult(sides=sides, found=tuple(found))
