"""``load``: load on a service, and the latencies that its requests have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from armload.bench.options import MODEL, QUANTISED, FileType
from armload.cli.options import A_BOARD, OneBoard, OutputOptions, models_in
from armload.cli.verb import verb
from armload.core.options import MOST, Names, Option, OptionGroup
from armload.engines.plan import REQUEST_TIMEOUT_S
from armload.engines.service_plan import ServiceSettings
from armload.runs.request import EngineSource, Metering, Waiting

DURATION_S = 60.0
PROMPT_TOKENS = N_PREDICT = "128"

Rate = Annotated[float, Field(ge=1e-6, le=10_000)]
Clients = Annotated[int, Field(ge=1, le=10_000)]
Positive = Annotated[float, Field(gt=0, le=MOST)]
Percentile = Annotated[float, Field(gt=0, lt=100)]
RequestCount = Annotated[int, Field(ge=1, le=1_000_000)]
RandomSeed = Annotated[int, Field(ge=0, lt=2**32)]


class RequestOptions(OptionGroup):
    """Requests to a service: how many, in which time, what they ask, and what they may take."""

    heading = "Load"

    duration: Annotated[
        Positive | None,
        Option(
            "how long to send requests, in seconds",
            "SECONDS",
            "none with --requests; for --rate, 1,000 times the time of one request, from 60 to "
            f"600; else {DURATION_S:g}",
        ),
    ] = None
    requests: Annotated[
        RequestCount | None,
        Option("maximum number of requests", "N", "as many as fit in --duration"),
    ] = None
    slo: Annotated[
        str,
        Option(
            "latency limits for each request, such as ttft=2s,tpot=500ms,e2e=30s",
            "LIMITS",
        ),
    ] = ""
    timeout: Annotated[
        Positive, Option("seconds after which a request counts as failed", "SECONDS")
    ] = REQUEST_TIMEOUT_S
    seed: Annotated[
        RandomSeed, Option("seed of arrivals and synthetic requests", "N", heading="Plan")
    ] = 1
    data: Annotated[
        Path | None,
        Option(
            "file of requests: JSON lines with prompt or messages, Alpaca's instruction, input and "
            "output, or ShareGPT's conversations",
            "FILE",
            "synthetic requests",
            heading="Plan",
        ),
    ] = None
    prompt_tokens: Annotated[
        str,
        Option(
            "length of synthetic prompts: 128, uniform:16-128, or lognormal with median and sigma: "
            "lognormal:100:0.8",
            "TOKENS",
            PROMPT_TOKENS,
            heading="Plan",
        ),
    ] = ""
    n_predict: Annotated[
        str,
        Option(
            "length of synthetic answers, or limit for answers to --data; forms as for "
            "--prompt-tokens",
            "N",
            f"{N_PREDICT}; the data's",
            heading="Plan",
        ),
    ] = ""


class UserOptions(OptionGroup):
    """What the users do that send the requests."""

    heading = "Users"

    turns: Annotated[
        str,
        Option(
            "requests per conversation, each sent after the previous answer and repeating the "
            "conversation so far: 4, uniform:2-6, lognormal:4:0.5; --rate, --requests and "
            "--warmup then count conversations",
            "TURNS",
            "1",
        ),
    ] = ""
    think_time: Annotated[
        str,
        Option(
            "seconds from an answer to the next turn: 5, uniform:2-10, exponential:5, "
            "lognormal:5:0.8",
            "SECONDS",
            "0",
        ),
    ] = ""
    patience: Annotated[
        str,
        Option(
            "seconds after which a user abandons a request that is not fully answered; forms as "
            "for --think-time",
            "SECONDS",
            "unlimited",
        ),
    ] = ""
    prefix_tokens: Annotated[
        Annotated[int, Field(ge=1, le=1_000_000)] | None,
        Option(
            "length of a prefix that prompts share, such as a system prompt; added to their own "
            "length",
            "TOKENS",
            "none",
        ),
    ] = None
    prefix_share: Annotated[
        Annotated[float, Field(gt=0, le=1)],
        Option("share of the requests, or conversations, that begin with that prefix", "SHARE"),
    ] = 1.0


class LoadOptions(
    ServiceSettings, RequestOptions, UserOptions, Metering, Waiting, EngineSource, OutputOptions
):
    """A service, and the load on it."""

    heading = "Load"

    board: Annotated[
        OneBoard, Option(f"{A_BOARD}; it serves the model", usual="virtual", heading="Board")
    ] = ""
    model: Annotated[
        str,
        Option(
            f"{MODEL}; with --url, the name to ask for",
            "MODEL",
            "demo; with --url the first that the service lists",
            heading="Plan",
        ),
    ] = ""
    type: Annotated[FileType | None, QUANTISED] = None
    url: Annotated[
        str,
        Option(
            "address of a running service instead, such as http://127.0.0.1:8080",
            heading="Service",
        ),
    ] = ""
    api_key_file: Annotated[
        Path | None,
        Option("file with the API key of the service at --url", "FILE", heading="Service"),
    ] = None
    dialect: Annotated[
        str,
        Option(
            "openai, openai-chat, openai-embeddings, llama-server or llm-serving",
            usual="llama-server; with --url openai",
            heading="Service",
        ),
    ] = ""
    rate: Annotated[
        tuple[Rate, ...],
        Option(
            "requests per second, sent on schedule whether or not earlier ones have been answered",
            "PER-SECOND",
            several="commas",
            heading="Arrivals",
        ),
    ] = ()
    stages: Annotated[
        Names,
        Option(
            "rates that follow one another without a pause: RATE:SECONDS for a step, "
            "FROM-TO:SECONDS for a ramp; each stage has its own figures",
            "STAGE",
            several="commas",
            heading="Arrivals",
        ),
    ] = ()
    replay: Annotated[
        Path | None,
        Option(
            "trace of Mooncake, BurstGPT or Azure; synthetic requests take their times and "
            "lengths from it",
            "FILE",
            heading="Arrivals",
        ),
    ] = None
    time_scale: Annotated[
        Positive,
        Option(
            "factor on the times of --replay; 10 makes it ten times slower",
            "FACTOR",
            heading="Arrivals",
        ),
    ] = 1.0
    length_scale: Annotated[
        Positive, Option("factor on the lengths of --replay", "FACTOR", heading="Arrivals")
    ] = 1.0
    find_rate: Annotated[
        bool,
        Option(
            "find the highest rate that meets --slo for nine of ten requests, with 95% confidence",
            heading="Arrivals",
        ),
    ] = False
    max_time: Annotated[
        Positive | None,
        Option(
            "seconds after which --find-rate ends, even if undecided",
            "SECONDS",
            "3,000 times the time of one request",
            heading="Arrivals",
        ),
    ] = None
    concurrency: Annotated[
        tuple[Clients, ...],
        Option(
            "clients that each wait for an answer before sending the next request",
            "CLIENTS",
            several="commas",
            heading="Arrivals",
        ),
    ] = ()
    max_concurrency: Annotated[
        Clients | None,
        Option(
            "maximum number of requests in flight, in an open loop; others wait, and their "
            "latency includes the wait",
            "N",
            "no limit",
            heading="Arrivals",
        ),
    ] = None
    arrivals: Annotated[
        str,
        Option(
            "gaps between requests: poisson, constant, gamma:SHAPE, or seed (those of the test "
            "client of MindSpore's llm-serving)",
            "HOW",
            "poisson",
            heading="Arrivals",
        ),
    ] = ""
    repeats: Annotated[
        Annotated[int, Field(ge=1, le=1000)],
        Option(
            "times to run each rate, each time on a different schedule; compare needs several", "N"
        ),
    ] = 1
    warmup: Annotated[
        Annotated[int, Field(ge=0, le=1_000_000)] | None,
        Option(
            "number of requests to exclude from the figures at the start of each rate",
            "N",
            "those in the first sixth of a rate's time; 0 with --requests, --concurrency, or "
            "--arrivals seed",
        ),
    ] = None
    abort_on: Annotated[
        RequestCount | None,
        Option(
            "end the load, with status 9, once this many requests at one rate have failed",
            "FAILURES",
        ),
    ] = None
    json_schema: Annotated[
        Path | None,
        Option(
            "file with a JSON schema that answers must match; others count as failures",
            "FILE",
            heading="Plan",
        ),
    ] = None
    extra_body: Annotated[
        str,
        Option(
            "JSON object with more keys for each request, such as sampling parameters",
            "JSON",
            heading="Plan",
        ),
    ] = ""
    stop_at_end: Annotated[
        bool,
        Option("stop synthetic answers at the model's end-of-text token", heading="Plan"),
    ] = False
    percentiles: Annotated[
        tuple[Percentile, ...],
        Option(
            "percentiles of latencies to show",
            "PERCENT",
            "50, 90 and 99; 50 and 99 in tables",
            several="commas",
            heading="Output",
        ),
    ] = ()
    export: Annotated[
        Names,
        Option(
            "also write vllm, csv or seed (result_X_x.json) into the load's folder",
            "FORMAT",
            several="commas",
            heading="Output",
        ),
    ] = ()


@verb(LoadOptions)
def load(options: LoadOptions) -> None:
    """Put a service under load, and record the outcome of each request.

    Requests are sent at random times (--rate), or by clients that wait for their answers
    (--concurrency); several rates or numbers of clients make a sweep. Latency counts from
    the scheduled time of each request.
    Example: armload load --board dayu200 --model m.gguf --rate 1,2 --slo ttft=2s
    """
    from contextlib import AbstractContextManager, nullcontext

    from armload.analysis.load.records import read_objectives
    from armload.cli import terminal
    from armload.cli.load_checks import check_combination
    from armload.cli.load_plan import (
        announced,
        extent_of,
        needed,
        paces_of,
        users_of,
        varied_rate,
    )
    from armload.cli.load_target import target_of, target_on_board
    from armload.cli.present_load import load_and_present
    from armload.runs.request import Request
    from armload.serving.arrivals import read_arrivals
    from armload.serving.dialects.dialect import CompletionRequest
    from armload.serving.dialects.registry import dialect_named
    from armload.serving.expected import measure_alone
    from armload.serving.exports import read_formats
    from armload.serving.find_rate import find_rate as search
    from armload.serving.load_runner import LoadRunner
    from armload.serving.planning import serving_plan
    from armload.serving.readiness import check_service
    from armload.serving.request_defaults import WithDefaults, read_defaults
    from armload.serving.target import LoadTarget
    from armload.serving.tokenizer import ServiceApi
    from armload.serving.traces import replayed
    from armload.serving.users import with_prefix
    from armload.serving.workload import Workload, check_data, read_lengths, workload_of

    check_combination(options)
    url, data, number = options.url, options.data, options.seed
    paces = paces_of(options)
    extent = extent_of(options)
    gaps = read_arrivals(options.arrivals or "poisson")
    objectives = read_objectives(options.slo)
    formats = read_formats(options.export, has_rates=bool(options.rate) or options.find_rate)
    prompt = read_lengths("prompt-tokens", options.prompt_tokens or PROMPT_TOKENS)
    answer = read_lengths("n-predict", options.n_predict) if options.n_predict else None
    varied = varied_rate(options, extent, gaps)
    most: int | None = None
    if varied is not None:
        most = len(varied.times)
    elif not (options.find_rate or options.turns):
        most = needed(paces, extent, gaps, number, options.repeats)
    trace = varied.trace if varied else None
    defaults = read_defaults(options.json_schema, options.extra_body)
    users = users_of(options)
    spoken = dialect_named(options.dialect or ("openai" if url else "llama-server"))
    plan = serving_plan(options.part(ServiceSettings))
    first = CompletionRequest(prompt="Once upon a time", max_tokens=1)
    if data:
        first = check_data(data, spoken, answer=answer, most=most)
    first = defaults.applied(first)
    spoken.body(first, "")
    progress = terminal.progress()
    reached: AbstractContextManager[LoadTarget]
    if url:
        reached = nullcontext(target_of(url, options.api_key_file, spoken, options.model))
    else:
        request = options.part(Request).model_copy(update={"board": options.board or "virtual"})
        types = [options.type] if options.type else []
        (model,) = models_in(request, [options.model or "demo"], types)
        reached = target_on_board(request, model, plan, spoken, progress)
    with reached as target:
        check_service(target, first, extent.timeout_s)
        api = ServiceApi(target.url, target.api_key)
        users = with_prefix(users, options.prefix_tokens, target, api, progress)
        stops = options.stop_at_end
        requests: Workload = (
            replayed(trace, api, stops_at_end=stops, seed=number, progress=progress)
            if trace
            else workload_of(
                api,
                data,
                prompt=prompt,
                answer=answer,
                stops_at_end=stops,
                seed=number,
                most=most,
                progress=progress,
            )
        )
        work = WithDefaults(work=requests, defaults=defaults)
        loading = LoadRunner(
            *(target, work, None if trace else gaps, number, progress, objectives),
            finds_rate=options.find_rate,
            subtracts_idle=options.subtract_idle,
            users=users,
            percentiles=tuple(sorted(set(options.percentiles))),
        )
        probing = LoadRunner(target, work, gaps, number, progress, objectives, users=users)
        at_a_time = (target.settings or {}).get("slots")
        if not options.find_rate:
            alone = measure_alone(target, work, extent.timeout_s, progress)
            extent = announced(
                *(options, extent, alone, work, users),
                paces=paces * options.repeats,
                gaps=gaps,
                slots=at_a_time,
                times=varied.times if varied else (),
                lengths=(prompt, answer or read_lengths("n-predict", N_PREDICT))
                if spoken.is_streamed
                else None,
                progress=progress,
            )

        def run() -> object:
            if varied is not None:
                return loading.staged(
                    *(varied.stages, varied.times, extent), options.max_concurrency
                )
            if not options.find_rate or objectives is None:
                return loading.run(paces, extent, options.repeats)
            return search(
                *(probing, loading, objectives, extent),
                slots=at_a_time,
                max_time_s=options.max_time,
                progress=progress,
            )

        load_and_present(loading, run, formats, probing=probing, as_json=options.as_json)
