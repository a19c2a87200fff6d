"""What options of a load rule each other out, or would do nothing."""

from __future__ import annotations

from armload.analysis.load.records import read_objectives
from armload.cli.load_options import LoadOptions
from armload.core.errors import UsageError
from armload.engines.service_plan import ServiceSettings
from armload.runs.request import EngineSource, Metering, Waiting
from armload.serving.dialects.openai import OpenAiEmbeddings


def check_combination(options: LoadOptions) -> None:
    """Refuse options that contradict each other, or would do nothing.

    Raises:
        UsageError: there is one.
    """
    if options.find_rate:
        _check_find_rate(options)
    elif options.max_time is not None:
        raise UsageError("--max-time is an option of --find-rate.", "Use --duration.")
    elif sum(map(bool, (options.rate, options.concurrency, options.stages, options.replay))) != 1:
        raise UsageError(
            "Give one of --rate, --concurrency, --stages and --replay, or let --find-rate find the "
            "highest rate.",
            "Example: --rate 0.5,1,2 (requests per second) or --concurrency 1,2,4 (clients)",
        )
    _check_varied(options)
    _check_embeddings(options)
    _check_users(options)
    if options.data and options.prompt_tokens:
        raise UsageError("--data cannot be combined with --prompt-tokens.", "Remove one.")
    if options.data and options.stop_at_end:
        raise UsageError(
            "--stop-at-end is for synthetic answers; those to --data always stop there.",
            "Remove it.",
        )
    if options.concurrency and options.arrivals:
        raise UsageError(
            "--arrivals is an option of --rate. With --concurrency, each client sends its next "
            "request when it has its answer.",
            "Remove it.",
        )
    if options.max_concurrency is not None and (options.concurrency or options.find_rate):
        raise UsageError(
            "--max-concurrency is an option of --rate, --stages and --replay.",
            "Use --concurrency for clients that wait for their answers.",
        )
    if options.url:
        options.refuse(
            {
                *("board", "type"),
                *EngineSource.model_fields,
                *Waiting.model_fields,
                *Metering.model_fields,
                *ServiceSettings.model_fields,
            },
            "--url, which names a service that is already running",
            "Remove it.",
        )
    elif options.api_key_file:
        raise UsageError("--api-key-file is an option of --url.", "Remove it.")


def _check_varied(options: LoadOptions) -> None:
    if options.turns and (options.stages or options.replay):
        raise UsageError(
            "--turns cannot be combined with --stages or --replay: a later turn waits for the "
            "previous answer, and could fall into another stage.",
            "Use --rate or --concurrency.",
        )
    if options.stages:
        options.refuse(
            ("duration", "requests", "repeats"),
            "--stages, which sets the length of each stage",
            "Remove it.",
        )
    if options.replay:
        options.refuse(
            ("data", "prompt_tokens", "n_predict", "arrivals", "repeats"),
            "--replay, whose trace sets times and lengths",
            "Use --time-scale and --length-scale to change them.",
        )
    elif named := options.given(("time_scale", "length_scale")):
        raise UsageError(f"{', '.join(named)}: only for --replay.", "Remove it.")


def _check_embeddings(options: LoadOptions) -> None:
    if options.dialect != OpenAiEmbeddings.name:
        return
    options.refuse(
        ("n_predict", "stop_at_end", "json_schema", "turns"),
        f"--dialect {OpenAiEmbeddings.name}, which generates no tokens",
        "Remove it.",
    )
    objectives = read_objectives(options.slo)
    if objectives and (objectives.ttft_s or objectives.tpot_s):
        raise UsageError(
            "--slo: an embedding has neither a first token nor a time per token.",
            "Use e2e, such as --slo e2e=500ms.",
        )


def _check_users(options: LoadOptions) -> None:
    if options.think_time and not options.turns:
        raise UsageError(
            "--think-time, the pause between turns, needs --turns.",
            "Example: --turns 4 --think-time 5",
        )
    if "prefix_share" in options.model_fields_set and options.prefix_tokens is None:
        raise UsageError(
            "--prefix-share needs --prefix-tokens, the length of the prefix.",
            "Example: --prefix-tokens 256 --prefix-share 0.8",
        )


def _check_find_rate(options: LoadOptions) -> None:
    options.refuse(
        ("turns", "patience"),
        "--find-rate, whose statistics assume independent requests that users never abandon",
        "Use --rate.",
    )
    options.refuse(
        (
            *("rate", "concurrency", "stages", "replay"),
            *("duration", "requests", "warmup", "repeats"),
        ),
        "--find-rate, which chooses rates, durations and warm-ups itself",
        "Use --max-time to end it earlier.",
    )
    if not options.slo:
        raise UsageError(
            "--find-rate needs --slo, the latencies to meet.",
            "Example: --find-rate --slo ttft=2s,tpot=500ms",
        )
