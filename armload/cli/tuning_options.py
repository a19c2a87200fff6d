"""What a person types for a search of settings, as values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from armload.analysis.load.objectives import read_objectives
from armload.bench.options import Options
from armload.cli.load_options import per_s
from armload.cli.numbers import above_0, amount, whole_number
from armload.core.errors import UsageError
from armload.core.values import parse_bytes
from armload.engines.defaults import REQUEST_TIMEOUT_S, TUNED_REQUESTS
from armload.serving.arrivals import MOST_REQUESTS
from armload.serving.lengths import read_lengths
from armload.tuning.wanted import AIMS, SERVED, Constraints, LeastAccuracy, Objective
from armload.tuning.wish import Requests, work_of

_QUESTIONS = 100


def objective_named(text: str) -> Objective:
    """Return an objective.

    Raises:
        UsageError: there is no such one.
    """
    for each in AIMS:
        if each == text:
            return each
    raise UsageError(f"--for {text!a}: must be one of {', '.join(AIMS)}.")


def constraints_of(
    max_kld: str, min_accuracy: str, max_memory: str, *, kld_prompts: str = "", task_data: str = ""
) -> Constraints:
    """Read what a setting must not break; an empty text says nothing.

    Raises:
        UsageError: one makes no sense, or is needed by another option and is missing.
    """
    for option, text, of, owner in (
        ("kld-prompts", kld_prompts, max_kld, "max-kld"),
        ("task-data", task_data, min_accuracy, "min-accuracy"),
    ):
        if text and not of:
            raise UsageError(f"--{option} is an option of --{owner}.", f"Add --{owner}.")
    kld = None
    if max_kld:
        kld = amount("max-kld", max_kld)
        if kld == 0:
            raise UsageError(f"--max-kld {max_kld!a}: must be above 0.", "Example: --max-kld 0.05")
    memory = None
    if max_memory:
        try:
            memory = parse_bytes(max_memory)
        except ValueError as error:
            raise UsageError(f"--max-memory: {error}.") from error
        if not memory:
            raise UsageError(f"--max-memory {max_memory!a}: must be above 0.")
    return Constraints.model_validate(
        {
            "max_kld": kld,
            "min_accuracy": _least_accuracy(min_accuracy, task_data) if min_accuracy else None,
            "max_rss_bytes": memory,
        }
    )


def requests_of(
    objective: Objective,
    typed: Mapping[str, str],
    *,
    prompt_tokens: str,
    n_predict: str,
) -> Requests | None:
    """Return the load that a service is tuned for; none for an objective of single runs.

    Args:
        typed: the options that only a load has, by name; an empty text was not given.

    Raises:
        UsageError: an option is missing, or does not belong to the objective.
    """
    given = {name for name, text in typed.items() if text}
    if objective not in SERVED:
        if given:
            raise UsageError(
                f"--for {objective} times single runs, and excludes --{min(given)}.",
                "Leave it out, or tune a service: --for total-time or --for rate.",
            )
        return None
    if objective == "total-time":
        if "rate" not in given or not given & {"duration", "requests"}:
            raise UsageError(
                "--for total-time needs the load whose time counts: --rate and --duration, or "
                "--rate and --requests.",
                "Example: --for total-time --rate 6 --duration 250",
            )
        if "slo" in given:
            raise UsageError("--slo is an option of --for rate.", "Leave it out.")
    else:
        if "slo" not in given:
            raise UsageError(
                "--for rate needs the latencies that count: --slo is missing.",
                "Example: --for rate --slo ttft=2s,tpot=500ms",
            )
        if given & {"rate", "duration"}:
            raise UsageError(
                "--for rate finds the rate, and excludes --rate and --duration.",
                "Use --requests for how many requests each trial has.",
            )
    if typed["data"] and prompt_tokens:
        raise UsageError("--data and --prompt-tokens exclude each other.", "Leave one out.")
    count = whole_number("requests", typed["requests"], least=1, most=MOST_REQUESTS)
    lengths = prompt_tokens or "128"
    read_lengths("prompt-tokens", lengths)
    if n_predict:
        read_lengths("n-predict", n_predict)
    return Requests(
        rate=per_s(typed["rate"]) if typed["rate"] else None,
        duration_s=above_0("duration", typed["duration"]) if typed["duration"] else None,
        requests=count or (TUNED_REQUESTS if objective == "rate" else None),
        data=Path(typed["data"]) if typed["data"] else None,
        prompt_tokens=lengths,
        n_predict=n_predict,
        objectives=read_objectives(typed["slo"]),
        timeout_s=above_0("timeout", typed["timeout"]) if typed["timeout"] else REQUEST_TIMEOUT_S,
    )


def work_typed(objective: Objective, prompt: str, prompt_tokens: str, n_predict: str) -> Options:
    """Return what each run does; nothing for a service.

    Raises:
        UsageError: a value makes no sense, or does not belong to the objective.
    """
    if objective in SERVED:
        if prompt:
            raise UsageError(
                f"--prompt is no option of --for {objective}.", "Give requests with --data FILE."
            )
        return Options()
    return work_of(
        objective,
        prompt=prompt,
        prompt_tokens=whole_number("prompt-tokens", prompt_tokens, least=2),
        n_predict=whole_number("n-predict", n_predict, least=1),
    )


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
    count = whole_number("min-accuracy", questions, least=1) or _QUESTIONS
    return LeastAccuracy(share=number, task=task, data=data, questions=count)
