"""``tune``: the settings with which a model is fastest on a board."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from armload.bench.options import MODEL
from armload.cli.load_options import Rate, RequestCount, RequestOptions
from armload.cli.options import OnBoards, OnGateways, OutputOptions
from armload.cli.verb import verb
from armload.core.defaults import DEMO
from armload.core.options import MOST, Alternatives, Duration, Exclusive, Option
from armload.core.values import ByteCount
from armload.core.workspace import runs_folder, tunings_folder
from armload.engines.plan import TUNED_REQUESTS, USUAL_PROMPT, PromptText
from armload.runs.request import EngineSource, Metering, Resuming, Waiting

if TYPE_CHECKING:
    from armload.core.progress import Progress
    from armload.report.result import Result
    from armload.tuning.record import TuningFolder


class TuneOptions(
    OnBoards,
    OnGateways,
    RequestOptions,
    Resuming,
    Metering,
    Waiting,
    EngineSource,
    OutputOptions,
):
    """What is optimised, over which settings, within which constraints and limits."""

    heading = "Search"
    alternatives: ClassVar[Alternatives] = (Exclusive((("prompt",), ("prompt_tokens",))),)

    model: Annotated[str, Option(MODEL, heading="Plan", harmless="in a plan")] = DEMO
    for_: Annotated[
        Literal["decode", "prefill", "ttft", "energy", "total-time", "rate"],
        Option(
            "what to optimise: decode, prefill, ttft (time to first token), energy (per "
            "generated token), total-time (of --rate requests per second, as load --arrivals "
            "seed sends them), or rate (requests answered within --slo)",
            "GOAL",
        ),
    ] = "decode"
    space: Annotated[
        Path | None,
        Option(
            "a YAML file whose keys are options, such as threads: [2, 4]; each list replaces the "
            "default one",
            "FILE",
            "all that the board, model and engine support",
        ),
    ] = None
    max_time: Annotated[
        Duration | None,
        Option(
            "time limit, such as 30m or 2h, of which up to half is reserved for comparing the "
            "best configuration with the defaults; builds and interruptions do not count",
            "DURATION",
            "until the fastest is clear",
            heading="Limits",
        ),
    ] = None
    max_trials: Annotated[
        Annotated[int, Field(ge=1, le=MOST)] | None,
        Option(
            "maximum number of trials",
            "N",
            "until the fastest is clear",
            heading="Limits",
        ),
    ] = None
    max_kld: Annotated[
        Annotated[float, Field(gt=0, le=MOST)] | None,
        Option(
            "constraint: maximum mean KL divergence from the defaults",
            "NATS",
        ),
    ] = None
    kld_prompts: Annotated[
        Path | None,
        Option("texts for --max-kld, one per line", "FILE", "output of the defaults"),
    ] = None
    min_accuracy: Annotated[
        str,
        Option(
            "constraint: minimum for the lower bound of the accuracy's 95% interval, as SHARE:TASK "
            "or SHARE:TASK:QUESTIONS, such as 0.5:gsm8k:200",
            "SHARE:TASK",
            harmless="anywhere",
        ),
    ] = ""
    task_data: Annotated[
        str,
        Option("the questions for --min-accuracy, as for --data of eval", "FILE", "the task's own"),
    ] = ""
    max_memory: Annotated[
        Annotated[ByteCount, Field(gt=0)] | None,
        Option("constraint: peak resident memory, such as 1.5GB", "SIZE", "the board's"),
    ] = None
    prompt: Annotated[
        PromptText,
        Option(
            "for decode and energy, the text to continue",
            usual=USUAL_PROMPT,
            heading="Plan",
            harmless="anywhere",
        ),
    ] = ""
    prompt_tokens: Annotated[
        str,
        Option(
            "length of a prompt of common words, or of synthetic requests as for load",
            "TOKENS",
            "512 for prefill, else 128",
            heading="Plan",
            harmless="anywhere",
        ),
    ] = ""
    n_predict: Annotated[
        str,
        Option(
            "tokens to generate for decode and energy, or of synthetic answers",
            "N",
            "64; 192 for energy; 128 for requests",
            heading="Plan",
            harmless="anywhere",
        ),
    ] = ""
    rate: Annotated[
        Rate | None, Option("requests per second, for total-time", "PER-SECOND", heading="Load")
    ] = None
    requests: Annotated[
        RequestCount | None,
        Option("maximum number of requests", "N", f"{TUNED_REQUESTS} for rate", heading="Load"),
    ] = None
    output: Annotated[
        str,
        Option("plan file to write", "FILE", "tuned-BOARD-MODEL.yaml", heading="Output"),
    ] = ""
    as_json: Annotated[
        bool,
        Option(
            "print one JSON document; for several boards, a list", name="json", harmless="anywhere"
        ),
    ] = False


@verb(TuneOptions, keeps=True, results=(runs_folder, tunings_folder))
def tune(options: TuneOptions) -> Result:
    """Find the fastest configuration for a model on a board.

    Starts with short trials, and gives longer ones to the best configurations. The winner is
    compared with the defaults in alternating runs, and written to a plan file. Several boards are
    tuned in parallel, independently. Repeating an interrupted command resumes it.
    Example: armload tune --board dayu200 --model m.gguf --for decode --max-time 30m
    """
    from armload.boards.naming import boards_called
    from armload.cli import terminal
    from armload.cli.options import output_file
    from armload.cli.tuning_checks import (
        check_combination,
        constraints_of,
        requests_of,
        work_typed,
    )
    from armload.evaluation.logits.computing import read_prompts
    from armload.fleet.reach import boards_reached
    from armload.fleet.threads import on_each
    from armload.report.tuning.result import TunedOnBoards, trial_line
    from armload.runs.request import Request
    from armload.tuning.request import TuningRequest
    from armload.tuning.tune import tune as search

    options = check_combination(options)
    goal = TuningRequest(
        model=options.model,
        objective=options.for_,
        narrowing=options.space,
        constraints=constraints_of(options),
        work=work_typed(options),
        requests=requests_of(options),
        kld_prompts=read_prompts(options.kld_prompts) if options.kld_prompts else (),
        seed=options.seed,
        max_trials=options.max_trials,
        max_time_s=options.max_time,
    )
    boards = boards_called(options.board)
    if len(boards) > 1:
        options = options.refuse(
            ("output",),
            "several boards, each of which gets its own plan file",
            "Remove it: the files are named tuned-BOARD-MODEL.yaml.",
        )
    output, progress = output_file(options.output) if options.output else None, terminal.progress()
    with boards_reached(options.scheduler, boards, progress) as reach:

        def tuned(board: str, own: Progress) -> TuningFolder:
            return search(
                options.part(Request).model_copy(update={"board": board}),
                goal,
                own,
                output=output,
                reach=reach,
                begun=lambda journal: journal.say_begun(own),
                report=lambda entry, state: own.say(trial_line(goal, entry, state)),
            )

        return TunedOnBoards(outcomes=tuple(on_each(boards, tuned, progress)))
