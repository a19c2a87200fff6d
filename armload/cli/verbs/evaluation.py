"""``eval`` and ``tradeoff``: how often a model is right, and how long that takes on a board."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from armload.bench.options import QUANTISED_ALL
from armload.cli.options import BOARDS, FileTypes, OnGateways, OutputOptions, models_in
from armload.cli.verb import verb
from armload.core.defaults import VIRTUAL
from armload.core.errors import UsageError
from armload.core.options import Duration, Names, Option, Seconds
from armload.core.workspace import evaluations_folder, runs_folder
from armload.engines.service_plan import ScorerOptions
from armload.evaluation.grading.registry import GRADERS
from armload.runs.request import EngineSource, Metering, Resuming, Waiting

_MODELS = ("word-problems:Q8_0", "word-problems:Q2_K")
_DEMO_TIME_S = 120

Budget = Annotated[int, Field(ge=1, le=2**31 - 1)]


class EvalOptions(
    ScorerOptions, OnGateways, Resuming, Metering, Waiting, EngineSource, OutputOptions
):
    """Models, a task, and how it is asked."""

    heading = "Task"

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
            "gsm8k, piqa, multiple-choice, word-problems, a YAML file, logits, or a task of "
            "lm-evaluation-harness: lm-eval:NAME",
        ),
    ] = "word-problems"
    data: Annotated[
        str,
        Option(
            "the task's questions: a file or hf:ORG/REPO/FILE; for logits a file with one prompt "
            "per line; for lm-eval a folder with more tasks",
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
        Option("whether the prompt states the budget", "NO|YES|BOTH", harmless="anywhere"),
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
        Option("the chat template: model (its own), chatml or none", "MODEL|CHATML|NONE"),
    ] = "model"
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
            several="commas",
            heading="Board",
            harmless="in a plan",
        ),
    ] = (VIRTUAL,)
    reference: Annotated[
        str,
        Option(
            "for logits: a run of the same prompts (in any form that show accepts), a folder of "
            ".npy files, or llama-cpp-python, which computes them on this machine",
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
def evaluate(options: EvalOptions) -> None:
    """Measure the accuracy of models under token and time budgets.

    Answers are kept: an interrupted evaluation resumes when the command is repeated, and grading
    again needs no board. Without options, a small model is evaluated in two quantisations.
    Example: armload eval --board dayu200 --model a.gguf --task gsm8k --data q.jsonl
    """
    from armload.boards.naming import boards_called
    from armload.cli import terminal
    from armload.cli.evaluation_checks import LOGITS, check_combination, has_questions
    from armload.cli.present_evaluation import (
        evaluate_and_present,
        harness_and_present,
        logits_and_present,
        regrade_and_present,
    )
    from armload.evaluation.preparing import EvaluationRequest
    from armload.evaluation.scorer_settings import ScorerSettings
    from armload.fleet.reach import boards_reached
    from armload.runs.request import Request

    options = check_combination(options)
    if options.regrade:
        regrade_and_present(options.regrade, options.grader, as_json=options.as_json)
        return
    boards = boards_called(options.board)
    request = options.part(Request).model_copy(update={"board": boards[0]})
    asked = EvaluationRequest(
        boards=boards,
        models=models_in(request, options.model or _MODELS, options.type),
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
    )
    settings = ScorerSettings(
        **dict(options.part(ScorerOptions)),
        max_time_s=options.max_time or (None if options.model else _DEMO_TIME_S),
    )
    with boards_reached(options.scheduler, boards, terminal.progress()) as reach:
        if has_questions(options.task):
            evaluate_and_present(request, asked, settings, reach, as_json=options.as_json)
        elif options.task != LOGITS:
            harness_and_present(request, asked, settings, reach, as_json=options.as_json)
        else:
            logits_and_present(
                *(request, asked, settings, reach),
                reference=options.reference,
                must_be_close=options.fail_unless_close,
                as_json=options.as_json,
            )


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
def tradeoff(options: TradeoffOptions) -> None:
    """Show which of two models is more accurate in the same time.

    Example: armload tradeoff latest --deadline 30,60
    """
    from armload.cli import terminal
    from armload.cli.streams import show_document
    from armload.core.values import ValueList
    from armload.evaluation.sides import find_sides
    from armload.evaluation.tradeoff import Tradeoff, trade
    from armload.report.evaluation.tradeoff import tradeoff_view, write_tradeoff_page
    from armload.report.layout import whole
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
    if options.as_json:
        show_document(ValueList[Tradeoff](tuple(found)))
    else:
        terminal.show(tradeoff_view(found))
        terminal.show(whole(f"page  {write_tradeoff_page(sides, found)}"))
