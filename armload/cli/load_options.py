"""The options of a load: the service, its requests, when they are sent, and by whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field

from armload.analysis.load.quantiles import SHOWN, USUAL
from armload.bench.options import MODEL, QUANTISED, FileType
from armload.cli.options import A_BOARD, STARTED, OneBoard, OutputOptions
from armload.core.options import MOST, Alternatives, Exclusive, Names, Option, OptionGroup, Yields
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


ON_BOARD = (
    *("board", "type"),
    *EngineSource.model_fields,
    *Waiting.model_fields,
    *Metering.model_fields,
    *ServiceSettings.model_fields,
)
"""Options of a load on a service that is started for it."""

OF_STARTED = tuple(each for each in ON_BOARD if each != "board")
"""The same without the board, which has an installed service."""

GENERATED = ("n_predict", "stop_at_end", "json_schema", "turns")
"""Options of a load whose answers have tokens."""


def _listed(percentiles: Sequence[float]) -> str:
    *others, last = (f"{each:g}" for each in percentiles)
    return f"{', '.join(others)} and {last}"


class RequestOptions(OptionGroup):
    """Requests to a service: how many, in which time, what they ask, and what they may take."""

    heading = "Load"
    alternatives: ClassVar[Alternatives] = (
        Exclusive((("data",), ("prompt_tokens",)), "Remove one."),
    )

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
            harmless="anywhere",
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
            harmless="anywhere",
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
            harmless="anywhere",
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
            harmless="anywhere",
        ),
    ] = ""
    think_time: Annotated[
        str,
        Option(
            "seconds from an answer to the next turn: 5, uniform:2-10, exponential:5, "
            "lognormal:5:0.8",
            "SECONDS",
            "0",
            needs="turns",
            harmless="anywhere",
        ),
    ] = ""
    patience: Annotated[
        str,
        Option(
            "seconds after which a user abandons a request that is not fully answered; forms as "
            "for --think-time",
            "SECONDS",
            "unlimited",
            harmless="anywhere",
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
        Option(
            "share of the requests, or conversations, that begin with that prefix",
            "SHARE",
            needs="prefix_tokens",
        ),
    ] = 1.0


class LoadOptions(
    ServiceSettings, RequestOptions, UserOptions, Metering, Waiting, EngineSource, OutputOptions
):
    """A service, and the load on it."""

    heading = "Load"
    absent: ClassVar[Mapping[str, str]] = {
        "--scheduler": "load connects to boards itself, because latencies would include the "
        "scheduler's: type it on the board's gateway."
    }
    alternatives: ClassVar[Alternatives] = (
        Exclusive((("rate",), ("concurrency",), ("stages",), ("replay",), ("find_rate",))),
        Exclusive((("images",), ("data",)), "Remove one."),
        Exclusive((("images",), ("replay",)), "Remove one."),
    )
    yields: ClassVar[Yields] = {
        "url": ON_BOARD,
        "service": OF_STARTED,
        "data": ("stop_at_end",),
        "dialect=openai-embeddings": GENERATED,
        "dialect=rerank": GENERATED,
    }

    board: Annotated[
        OneBoard,
        Option(
            f"{A_BOARD}; it serves the model", usual=STARTED, heading="Board", harmless="in a plan"
        ),
    ] = ""
    model: Annotated[
        str,
        Option(
            f"{MODEL}; with --url, the name to ask for",
            "MODEL",
            "demo; with --url the first that the service lists",
            heading="Plan",
            harmless="in a plan",
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
    service: Annotated[
        str,
        Option(
            "the board's installed service of this name instead, which may answer others meanwhile",
            "NAME",
            heading="Service",
        ),
    ] = ""
    images: Annotated[
        Path | None,
        Option(
            "folder of images, one of which comes before each synthetic prompt, in turn; for "
            "models with vision and their projector, which is found as by --mmproj auto of serve",
            "FOLDER",
            "none",
            heading="Plan",
        ),
    ] = None
    api_key_file: Annotated[
        Path | None,
        Option(
            "file with the API key of the service at --url",
            "FILE",
            heading="Service",
            needs="url",
        ),
    ] = None
    dialect: Annotated[
        str,
        Option(
            "openai, openai-chat, openai-embeddings, rerank, llama-server or llm-serving",
            usual="llama-server; with --url openai",
            heading="Service",
            harmless="anywhere",
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
            harmless="anywhere",
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
            needs="replay",
        ),
    ] = 1.0
    length_scale: Annotated[
        Positive,
        Option("factor on the lengths of --replay", "FACTOR", heading="Arrivals", needs="replay"),
    ] = 1.0
    find_rate: Annotated[
        bool,
        Option(
            "find the highest rate that meets --slo for nine of ten requests, with 95% confidence",
            heading="Arrivals",
            harmless="anywhere",
        ),
    ] = False
    max_time: Annotated[
        Positive | None,
        Option(
            "seconds after which --find-rate ends, even if undecided",
            "SECONDS",
            "3,000 times the time of one request",
            heading="Arrivals",
            needs="find_rate",
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
            "PATTERN",
            "poisson",
            heading="Arrivals",
            harmless="anywhere",
        ),
    ] = ""
    repeats: Annotated[
        Annotated[int, Field(ge=1, le=1000)],
        Option(
            "number of runs of each rate, each on a different schedule; compare needs several", "N"
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
        Option(
            "stop synthetic answers at the model's end-of-text token",
            heading="Plan",
            harmless="anywhere",
        ),
    ] = False
    percentiles: Annotated[
        tuple[Percentile, ...],
        Option(
            "percentiles of latencies to show",
            "PERCENT",
            f"{_listed(USUAL)}; {_listed(SHOWN)} in tables",
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
