"""``eval`` and ``tradeoff``: how often a model is right, and how long that takes on a board."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from armload.bench.options import QUANTISED_ALL
from armload.cli.options import (
    BOARDS,
    STARTED,
    FileTypes,
    ForeignProgram,
    OnGateways,
    OutputOptions,
    models_in,
)
from armload.cli.verb import verb
from armload.core.defaults import VIRTUAL
from armload.core.errors import UsageError
from armload.core.options import Duration, Names, Option, Seconds
from armload.core.workspace import evaluations_folder, runs_folder
from armload.engines.plan import (
    IMAGE_MAX_TOKENS,
    MMPROJ,
    Computation,
    MediaPath,
    Plan,
    Pooling,
    TokenCount,
)
from armload.engines.service_plan import ScorerOptions
from armload.evaluation.grading.registry import GRADERS
from armload.runs.request import EngineSource, Metering, Resuming, Waiting

if TYPE_CHECKING:
    from armload.core.progress import Progress
    from armload.evaluation.program import ProgramRequest
    from armload.report.result import Result

_MODELS = ("word-problems:Q8_0", "word-problems:Q2_K")
_DEMO_TIME_S = 120

Budget = Annotated[int, Field(ge=1, le=2**31 - 1)]
WholeSeconds = Annotated[int, Field(ge=1, le=86_400)]


class EvalOptions(
    ScorerOptions,
    ForeignProgram,
    OnGateways,
    Resuming,
    Metering,
    Waiting,
    EngineSource,
    OutputOptions,
):
    """Models, a task, and how it is asked."""

    heading = "Task"

    command: Annotated[
        tuple[str, ...],
        Option(
            "after --: a program that answers in place of armload's scorer, and its arguments: "
            "{prompt} is a question, {prompt_file} a file of it, {budget} a number of tokens",
            several="repeat",
            is_argument=True,
            is_behind=True,
            takes="file",
            heading="Program",
        ),
    ] = ()
    time_limit_s: Annotated[
        WholeSeconds,
        Option(
            "stop the program after this many seconds for a question",
            "SECONDS",
            name="time-limit",
            heading="Program",
            needs="command",
        ),
    ] = 1800
    model: Annotated[
        Names,
        Option(
            "a GGUF file, hf:ORG/REPO[:TYPE], hf:ORG/REPO/FILE.gguf (ms: for ModelScope), "
            "word-problems:TYPE, or smollm2",
            "MODEL",
            " and ".join(_MODELS),
            "commas",
            heading="Plan",
            harmless="in a plan",
        ),
    ] = ()
    type: Annotated[FileTypes, QUANTISED_ALL] = ()
    task: Annotated[
        str,
        Option(
            "gsm8k, piqa, multiple-choice, word-problems, drawings (questions on images), a YAML "
            "file, logits, similarity (of sentences, by their embeddings), or a task of "
            "lm-evaluation-harness: lm-eval:NAME",
        ),
    ] = "word-problems"
    data: Annotated[
        str,
        Option(
            "the task's questions: a file or hf:ORG/REPO/FILE; for logits a file with one prompt "
            "per line; for similarity JSON lines with a, b and score; for lm-eval a folder with "
            "more tasks",
            "FILE",
            "the task's own",
        ),
    ] = ""
    prompt: Annotated[
        Names,
        Option("names of the task's prompts", "NAMES", "its first", "commas", harmless="anywhere"),
    ] = ()
    budget: Annotated[
        tuple[Budget, ...],
        Option(
            "limits in tokens; the answer so far is graded at each",
            "TOKENS",
            "the task's",
            "commas",
            harmless="anywhere",
        ),
    ] = ()
    tell_budget: Annotated[
        Literal["no", "yes", "both"],
        Option("whether the prompt states the budget", "no|yes|both", harmless="anywhere"),
    ] = "no"
    conclude: Annotated[
        bool,
        Option(
            "at the end of the budget, append a sentence that makes the model answer",
            harmless="anywhere",
        ),
    ] = False
    template: Annotated[
        Literal["model", "chatml", "none"],
        Option(
            "the chat template: model (its own; with a program, what that applies), chatml or none",
            "model|chatml|none",
        ),
    ] = "model"
    pooling: Annotated[
        Pooling,
        Option(
            "for similarity: how to pool a sentence's tokens, as in bench",
            "POOLING",
            needs="task=similarity",
        ),
    ] = "model"
    mmproj: Annotated[MediaPath | None, MMPROJ] = None
    image_max_tokens: Annotated[
        TokenCount | None, IMAGE_MAX_TOKENS.of_one("as in the projector")
    ] = None
    limit: Annotated[Budget | None, Option("take the first N questions", "N", "all")] = None
    grader: Annotated[
        Names,
        Option(
            f"{', '.join(GRADERS)}; two only with --regrade",
            "NAME",
            "the task's",
            "commas",
            harmless="anywhere",
        ),
    ] = ()
    regrade: Annotated[
        str,
        Option(
            "grade the answers of this evaluation with --grader from now on; with two graders, "
            "list where they disagree",
            "EVALUATION",
        ),
    ] = ""
    max_time: Annotated[
        Duration | None,
        Option(
            "time limit, such as 90s or 30m, divided equally among models and prompts",
            "DURATION",
            f"none; {_DEMO_TIME_S}s without --model",
            heading="Limits",
        ),
    ] = None
    board: Annotated[
        Names,
        Option(
            f"{BOARDS}; several boards share the questions",
            "BOARD",
            STARTED,
            several="commas",
            heading="Board",
            harmless="in a plan",
        ),
    ] = (VIRTUAL,)
    reference: Annotated[
        str,
        Option(
            "for logits: a run of the same prompts (in any form that show accepts), a folder of "
            ".npy files, or llama-cpp-python or dllama, which compute them on this machine",
            "RUN",
            heading="Output",
            needs="task=logits",
        ),
    ] = ""
    fail_unless_close: Annotated[
        bool,
        Option(
            "for logits: exit with 13 unless all are close to the reference",
            heading="Output",
            needs="reference",
            harmless="anywhere",
        ),
    ] = False


@verb(EvalOptions, name="eval", keeps=True, results=(runs_folder, evaluations_folder))
def evaluate(options: EvalOptions) -> Generator[Result, None, None]:
    """Measure the accuracy of models under token and time budgets.

    Answers are kept: an interrupted evaluation resumes when the command is repeated, and grading
    again needs no board. Without options, a small model is evaluated in two quantisations.
    Example: armload eval --board dayu200 --model a.gguf --task gsm8k --data q.jsonl
    """
    from armload.boards.naming import boards_called
    from armload.cli import terminal
    from armload.cli.evaluation_checks import (
        LOGITS,
        SIMILARITY,
        check_combination,
        has_questions,
    )
    from armload.core.errors import CombinedError
    from armload.evaluation.harness.evaluating import evaluate_with
    from armload.evaluation.logits.computing import logits_and_reference
    from armload.evaluation.preparing import EvaluationRequest
    from armload.evaluation.scorer_settings import ScorerSettings
    from armload.evaluation.similarity import judge_similarity, read_pairs
    from armload.fleet.evaluating import evaluate_on_boards
    from armload.fleet.reach import boards_reached
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
        else models_in(request, options.model or _MODELS, options.type),
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
        max_time_s=options.max_time or (None if options.model or options.command else _DEMO_TIME_S),
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
