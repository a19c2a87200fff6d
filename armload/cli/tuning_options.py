"""What a person types for a search of settings, as values."""

from __future__ import annotations

import math

from armload.analysis.load.objectives import read_objectives
from armload.bench.options import Options
from armload.cli.verbs.tune import TuneOptions
from armload.core.errors import UsageError
from armload.core.options import MOST
from armload.engines.defaults import TUNED_REQUESTS
from armload.serving.lengths import read_lengths
from armload.tuning.wanted import SERVED, Constraints, LeastAccuracy
from armload.tuning.wish import Requests, work_of

_QUESTIONS = 100
_LOAD = ("rate", "duration", "requests", "data", "slo", "timeout")


def constraints_of(options: TuneOptions) -> Constraints:
    """Return what a configuration must meet.

    Raises:
        UsageError: one makes no sense, or is needed by another option and is missing.
    """
    for field, owner in (("kld_prompts", "max_kld"), ("task_data", "min_accuracy")):
        if getattr(options, field) and not getattr(options, owner):
            option, needed = options.given((field,))[0], f"--{owner.replace('_', '-')}"
            raise UsageError(f"{option} is an option of {needed}.", f"Add {needed}.")
    return Constraints(
        max_kld=options.max_kld,
        min_accuracy=_least_accuracy(options.min_accuracy, options.task_data)
        if options.min_accuracy
        else None,
        max_rss_bytes=options.max_memory,
    )


def requests_of(options: TuneOptions) -> Requests | None:
    """Return the load that a service is tuned for; none for an objective of single runs.

    Raises:
        UsageError: an option is missing, or does not belong to the objective.
    """
    objective = options.for_
    if objective not in SERVED:
        options.refuse(
            _LOAD,
            f"--for {objective}, which times single runs",
            "Leave that out, or tune a service: --for total-time or --for rate.",
        )
        return None
    if objective == "total-time":
        if options.rate is None or not options.given(("duration", "requests")):
            raise UsageError(
                "--for total-time needs the load whose time counts: --rate and --duration, or "
                "--rate and --requests.",
                "Example: --for total-time --rate 6 --duration 250",
            )
        options.refuse(("slo",), "--for total-time", "Leave it out, or use --for rate.")
    else:
        if not options.slo:
            raise UsageError(
                "--for rate needs the latencies that count: --slo is missing.",
                "Example: --for rate --slo ttft=2s,tpot=500ms",
            )
        options.refuse(
            ("rate", "duration"),
            "--for rate, which finds the rate",
            "Use --requests for how many requests each trial has.",
        )
    if options.data and options.prompt_tokens:
        raise UsageError("--data cannot be combined with --prompt-tokens.", "Remove one.")
    lengths = options.prompt_tokens or "128"
    read_lengths("prompt-tokens", lengths)
    if options.n_predict:
        read_lengths("n-predict", options.n_predict)
    return Requests(
        rate=options.rate,
        duration_s=options.duration,
        requests=options.requests or (TUNED_REQUESTS if objective == "rate" else None),
        data=options.data,
        prompt_tokens=lengths,
        n_predict=options.n_predict,
        objectives=read_objectives(options.slo),
        timeout_s=options.timeout,
    )


def work_typed(options: TuneOptions) -> Options:
    """Return what each run does; nothing for a service.

    Raises:
        UsageError: a value makes no sense, or does not belong to the objective.
    """
    if options.for_ in SERVED:
        options.refuse(("prompt",), f"--for {options.for_}", "Give requests with --data FILE.")
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
