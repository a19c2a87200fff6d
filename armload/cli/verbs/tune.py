"""``tune``: the settings with which a model is fastest on a board."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from armload.bench.options import MODEL, Options
from armload.cli.load_options import Rate, RequestCount, RequestOptions
from armload.cli.options import OnBoards, OnGateways, OutputOptions, json_option
from armload.cli.verb import verb
from armload.core.defaults import DEMO
from armload.core.errors import UsageError
from armload.core.options import MOST, Alternatives, Duration, Exclusive, Option
from armload.core.values import ByteCount
from armload.core.workspace import runs_folder, tunings_folder
from armload.engines.plan import TUNED_REQUESTS, USUAL_PROMPT, PromptText
from armload.runs.request import EngineSource, Metering, Resuming, Waiting
from armload.tuning.wanted import SERVED, Constraints, LeastAccuracy

if TYPE_CHECKING:
    from armload.core.progress import Progress
    from armload.report.result import Result
    from armload.tuning.record import TuningFolder
    from armload.tuning.request import TunedLoad


_QUESTIONS = 100
_LOAD = ("rate", "duration", "requests", "data", "slo", "timeout")


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
    as_json: Annotated[bool, json_option("; for several boards, a list")] = False


def check_combination(options: TuneOptions) -> TuneOptions:
    """Refuse options that do not belong to the objective or to others; return those that apply.

    Raises:
        UsageError: there is one, or one is missing.
    """
    from armload.tuning.request import PROMPT_TOKENS

    objective = options.for_
    if options.max_kld is None:
        options = options.refuse_without(("kld_prompts",), "--max-kld", "Add --max-kld.")
    if not options.min_accuracy:
        options = options.refuse_without(("task_data",), "--min-accuracy", "Add --min-accuracy.")
    if objective != "energy":
        options = options.refuse(Metering.model_fields, f"--for {objective}", "Use --for energy.")
    if objective in PROMPT_TOKENS:
        options = options.refuse(
            ("n_predict",), f"--for {objective}, which times the prompt alone", "Remove it."
        )
    if objective not in SERVED:
        return options.refuse(
            _LOAD,
            f"--for {objective}, which measures single runs",
            "Leave that out, or tune a service: --for total-time or --for rate.",
        )
    options = options.refuse(("prompt",), f"--for {objective}", "Give requests with --data FILE.")
    if options.data and options.prompt_tokens:
        raise UsageError("--data cannot be combined with --prompt-tokens.", "Remove one.")
    if objective == "total-time":
        if options.rate is None or not (options.duration or options.requests):
            raise UsageError(
                "--for total-time needs a load: --rate with --duration or --requests.",
                "Example: --for total-time --rate 6 --duration 250",
            )
        return options.refuse(("slo",), "--for total-time", "Leave it out, or use --for rate.")
    if not options.slo:
        raise UsageError(
            "--for rate needs --slo, the latencies to meet.",
            "Example: --for rate --slo ttft=2s,tpot=500ms",
        )
    return options.refuse(
        ("rate", "duration"),
        "--for rate, which finds the rate",
        "To set the number of requests in each trial, use --requests.",
    )


def constraints_of(options: TuneOptions) -> Constraints:
    """Return what a configuration must meet.

    Raises:
        UsageError: one makes no sense.
    """
    return Constraints(
        max_kld=options.max_kld,
        min_accuracy=_least_accuracy(options.min_accuracy, options.task_data)
        if options.min_accuracy
        else None,
        max_rss_bytes=options.max_memory,
    )


def requests_of(options: TuneOptions) -> TunedLoad | None:
    """Return the load that a service is tuned for; none for an objective of single runs.

    Raises:
        UsageError: a value makes no sense.
    """
    from armload.analysis.load.records import read_objectives
    from armload.serving.workload import read_lengths
    from armload.tuning.request import TunedLoad

    if options.for_ not in SERVED:
        return None
    lengths = options.prompt_tokens or "128"
    read_lengths("prompt-tokens", lengths)
    if options.n_predict:
        read_lengths("n-predict", options.n_predict)
    return TunedLoad(
        rate=options.rate,
        duration_s=options.duration,
        requests=options.requests or (TUNED_REQUESTS if options.for_ == "rate" else None),
        data=options.data,
        prompt_tokens=lengths,
        n_predict=options.n_predict,
        objectives=read_objectives(options.slo),
        timeout_s=options.timeout,
    )


def work_typed(options: TuneOptions) -> Options:
    """Return what each run does; nothing for a service.

    Raises:
        UsageError: a value makes no sense, or a prompt is given twice.
    """
    from armload.tuning.request import work_of

    if options.for_ in SERVED:
        return Options()
    return work_of(
        options.for_,
        prompt=options.prompt,
        prompt_tokens=_tokens("prompt-tokens", options.prompt_tokens, least=2),
        n_predict=_tokens("n-predict", options.n_predict, least=1),
    )


def _tokens(option: str, text: str, *, least: int) -> int | None:
    """Read a number of tokens, which for a load could be a distribution."""
    if not text:
        return None
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else -1
    if not least <= number <= MOST:
        raise UsageError(
            f"--{option}: must be a whole number from {least} to {MOST:,}, but is {text!a:.60}."
        )
    return number


def _least_accuracy(text: str, data: str) -> LeastAccuracy:
    share, _, rest = text.partition(":")
    task, _, questions = rest.partition(":")
    try:
        number = float(share)
    except ValueError:
        number = math.nan
    if not 0 < number < 1 or not task:
        raise UsageError(
            f"--min-accuracy {text!a}: must be SHARE:TASK or SHARE:TASK:QUESTIONS, with a share "
            "above 0 and below 1.",
            "Example: --min-accuracy 0.5:gsm8k:200",
        )
    count = _tokens("min-accuracy", questions, least=1) or _QUESTIONS
    return LeastAccuracy(share=number, task=task, data=data, questions=count)


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
