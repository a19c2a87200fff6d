"""What options of a load rule each other out, or would do nothing."""

from __future__ import annotations

from armload.analysis.load.records import read_objectives
from armload.cli.load_options import GENERATED, OF_STARTED, ON_BOARD, LoadOptions
from armload.core.errors import UsageError
from armload.serving.dialects.openai import OpenAiChat
from armload.serving.dialects.registry import POOLED


def check_combination(options: LoadOptions) -> LoadOptions:
    """Refuse options that contradict each other, or would do nothing; return those that apply.

    Raises:
        UsageError: there is one.
    """
    if options.find_rate:
        options = _check_find_rate(options)
    elif sum(map(bool, (options.rate, options.concurrency, options.stages, options.replay))) != 1:
        raise UsageError(
            "Give one of --rate, --concurrency, --stages and --replay, or let --find-rate find "
            "the highest rate.",
            "Example: --rate 0.5,1,2 (requests per second) or --concurrency 1,2,4 (clients)",
        )
    options = _check_images(_check_pooled(_check_varied(options)))
    if options.data:
        options = options.refuse(
            ("stop_at_end",), "--data, whose answers always stop there", "Remove it."
        )
    if options.concurrency:
        options = options.refuse(
            ("arrivals",),
            "--concurrency, with which each client sends its next request when it has its answer",
            "Remove it.",
        )
    if options.concurrency or options.find_rate:
        options = options.refuse_without(
            ("max_concurrency",),
            "--rate, --stages or --replay",
            "Use --concurrency for clients that wait for their answers.",
        )
    if not (options.rate or options.find_rate) and "seed" in options.export:
        options = options.without_usual(("export",))
    if options.service:
        return options.refuse(
            (*OF_STARTED, "url"),
            "--service, which names a service that is installed on the board",
            "Remove it.",
        )
    if options.url:
        return options.refuse(
            ON_BOARD, "--url, which names a service that is already running", "Remove it."
        )
    return options


def _check_varied(options: LoadOptions) -> LoadOptions:
    if options.stages or options.replay:
        options = options.refuse(
            ("turns",),
            "--stages or --replay: a later turn waits for the previous answer, and could fall into "
            "another stage",
            "Use --rate or --concurrency.",
        )
    if options.stages:
        options = options.refuse(
            ("duration", "requests", "repeats"),
            "--stages, which sets the length of each stage",
            "Remove it.",
        )
    if options.replay:
        return options.refuse(
            ("data", "prompt_tokens", "n_predict", "arrivals", "repeats"),
            "--replay, whose trace sets times and lengths",
            "Use --time-scale and --length-scale to change them.",
        )
    return options


def _check_pooled(options: LoadOptions) -> LoadOptions:
    if options.dialect not in POOLED:
        return options
    options = options.refuse(
        GENERATED, f"--dialect {options.dialect}, which generates no tokens", "Remove it."
    )
    objectives = read_objectives(options.slo)
    if objectives and (objectives.ttft_s or objectives.tpot_s):
        if options.given(("slo",)):
            raise UsageError(
                "--slo: an embedding or a ranking has neither a first token nor a time per token.",
                "Use e2e, such as --slo e2e=500ms.",
            )
        options = options.without_usual(("slo",))
    return options


def _check_images(options: LoadOptions) -> LoadOptions:
    if options.images is None:
        return options
    if options.dialect not in ("", OpenAiChat.name):
        raise UsageError(
            f"--images: dialect {options.dialect} has no images.",
            f"Use --dialect {OpenAiChat.name}.",
        )
    return options.model_copy(update={"dialect": OpenAiChat.name})


def _check_find_rate(options: LoadOptions) -> LoadOptions:
    options = options.refuse(
        ("turns", "patience"),
        "--find-rate, whose statistics assume independent requests that users never abandon",
        "Use --rate.",
    )
    options = options.refuse(
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
    return options
