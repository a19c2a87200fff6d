"""The options of a search for the best configuration: which belong together, and their values."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from armload.analysis.load.records import read_objectives
from armload.bench.options import Options
from armload.core.errors import UsageError
from armload.core.options import MOST
from armload.engines.plan import TUNED_REQUESTS
from armload.runs.request import Metering
from armload.serving.workload import read_lengths
from armload.tuning.request import PROMPT_TOKENS, TunedLoad, work_of
from armload.tuning.wanted import SERVED, Constraints, LeastAccuracy

if TYPE_CHECKING:
    from armload.cli.verbs.tune import TuneOptions

_QUESTIONS = 100
_LOAD = ("rate", "duration", "requests", "data", "slo", "timeout")


def check_combination(options: TuneOptions) -> TuneOptions:
    """Refuse options that do not belong to the objective or to others; return those that apply.

    Raises:
        UsageError: there is one, or one is missing.
    """
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
