"""Figures computed from a run's steps."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from armload.analysis.run import Summary, TokenTimes
from armload.analysis.statistics import median_interval
from armload.engines.output import Reported
from armload.engines.trace import Step, Trace


def quantile(samples: Sequence[float], percent: int) -> float:
    """Return a percentile by linear interpolation between the closest ranks.

    Raises:
        ValueError: no samples.
    """
    if len(samples) == 1:
        return samples[0]
    return statistics.quantiles(samples, n=100, method="inclusive")[percent - 1]


def generating(steps: Sequence[Step]) -> list[Step]:
    """Return the main model's steps that decoded generated tokens and no prompt."""
    return [
        step
        for step in steps
        if step.model == 0 and step.generated_tokens > 0 and step.prompt_tokens == 0
    ]


def prompting(steps: Sequence[Step]) -> list[Step]:
    """Return the main model's steps that processed a prompt and nothing else."""
    return [step for step in steps if step.model == 0 and step.prompt_tokens == step.tokens]


def summarise(
    header: Trace | None, steps: Sequence[Step], reported: Reported | None = None
) -> Summary:
    """Compute rates and quantiles.

    A generating step that carries several tokens counts as that many output tokens of equal time.
    A draft model's steps count nowhere, nor do those of a server that processed one request's
    prompt and generated for another.
    What a program reports of itself is taken as it is; only the quantiles are computed then.
    """
    if reported is not None:
        return Summary(**dict(reported), token_s=_token_times(token_times(steps)))
    prompt, decode = prompting(steps), generating(steps)
    prompt_tokens = sum(step.prompt_tokens for step in prompt)
    decode_tokens = sum(step.output_tokens for step in decode)
    if header is not None and decode:
        decode_tokens += header.last_accepted_tokens
    prompt_s = sum(step.duration_s for step in prompt)
    decode_s = sum(step.duration_s for step in decode)
    return Summary(
        ttft_s=(prompt[-1].end_ns - header.start_ns) / 1e9 if header and prompt else None,
        prefill_tps=prompt_tokens / prompt_s if prompt_s > 0 else None,
        decode_tps=decode_tokens / decode_s if decode_s > 0 else None,
        token_s=_token_times(token_times(steps)),
        wall_s=(steps[-1].end_ns - header.start_ns) / 1e9 if header and steps else None,
        prefill_s=prompt_s if prompt else None,
        prefill_tokens=prompt_tokens if prompt else None,
        decode_s=decode_s if decode else None,
        decode_tokens=decode_tokens if decode else None,
    )


def token_times(steps: Sequence[Step]) -> list[float]:
    """Return the seconds of every output token but the first, in order."""
    return [
        step.duration_s / step.output_tokens
        for step in generating(steps)
        for _ in range(step.output_tokens)
    ]


def _token_times(samples: Sequence[float]) -> TokenTimes | None:
    if not samples:
        return None
    median = median_interval(samples)
    return TokenTimes(
        p50=quantile(samples, 50),
        p90=quantile(samples, 90),
        p99=quantile(samples, 99),
        max=max(samples),
        p50_low=median.low if median else None,
        p50_high=median.high if median else None,
    )
