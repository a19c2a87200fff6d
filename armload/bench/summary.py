"""Figures computed from a run's steps."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from armload.bench.run import Step, Summary, TokenTimes, Trace


def quantile(samples: Sequence[float], percent: int) -> float:
    """Return a percentile by linear interpolation between the closest ranks.

    Raises:
        ValueError: no samples.
    """
    if len(samples) == 1:
        return samples[0]
    return statistics.quantiles(samples, n=100, method="inclusive")[percent - 1]


def generating(steps: Sequence[Step]) -> list[Step]:
    """Return the steps that decoded generated tokens."""
    return [step for step in steps if step.phase == "generate"]


def summarise(header: Trace | None, steps: Sequence[Step]) -> Summary:
    """Compute rates and quantiles.

    A generating step that carries several tokens counts as that many output tokens of equal time.
    """
    prompt = [step for step in steps if step.phase == "prompt"]
    decode = generating(steps)
    prompt_s = sum(step.duration_s for step in prompt)
    decode_s = sum(step.duration_s for step in decode)
    samples = [step.duration_s / step.tokens for step in decode for _ in range(step.tokens)]
    return Summary(
        ttft_s=(prompt[-1].end_ns - header.start_ns) / 1e9 if header and prompt else None,
        prefill_tps=sum(step.tokens for step in prompt) / prompt_s if prompt_s > 0 else None,
        decode_tps=sum(step.tokens for step in decode) / decode_s if decode_s > 0 else None,
        token_s=TokenTimes(
            p50=quantile(samples, 50),
            p90=quantile(samples, 90),
            p99=quantile(samples, 99),
            max=max(samples),
        )
        if samples
        else None,
        wall_s=(steps[-1].end_ns - header.start_ns) / 1e9 if header and steps else None,
    )
