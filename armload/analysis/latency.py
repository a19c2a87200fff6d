"""How long an answer would take on a board, from a run of the same model there.

Nobody waits for a thousand answers at many seconds per token; a run of a hundred tokens tells what
each of them would take.
"""

from __future__ import annotations

import statistics

from armload.analysis.run import Run
from armload.analysis.summary import prompting, token_times
from armload.analysis.waiting import Waits, decoding
from armload.core.errors import UsageError
from armload.core.values import Value
from armload.engines.plan import MICRO_BATCH_TOKENS

FEWEST_TOKENS = 8


class Latency(Value):
    """The time of an answer by the lengths of prompt and answer.

    Attributes:
        run: where it is from.
        prefill_s: of a prompt of ``prefill_tokens``.
        prefill_tokens: of the run's prompt.
        reads_weights: a prompt's time is that of reading the weights, once for each micro-batch.
        first_token_s: of a token after no others.
        growth_s: that each token before it adds.
    """

    run: str
    prefill_s: float
    prefill_tokens: int
    reads_weights: bool
    first_token_s: float
    growth_s: float

    def seconds(self, prompt_tokens: int, tokens: int) -> float:
        """Return the time from the start of a prompt until the last token of its answer."""
        if tokens == 0:
            return 0.0
        # The prompt's last step gives the first token.
        first, last = prompt_tokens + 1, prompt_tokens + tokens - 1
        positions = (first + last) / 2
        decoding_s = (tokens - 1) * (self.first_token_s + self.growth_s * positions)
        return self._prompt_s(prompt_tokens) + max(0.0, decoding_s)

    def _prompt_s(self, prompt_tokens: int) -> float:
        if self.reads_weights:
            return self.prefill_s * _passes(prompt_tokens) / _passes(self.prefill_tokens)
        return self.prefill_s * prompt_tokens / self.prefill_tokens


def latency_of(run: Run) -> Latency:
    """Return what a run says.

    Raises:
        UsageError: it has no prompt, or too few tokens.
    """
    prompt, times_s = prompting(run.steps), token_times(run.steps)
    if not prompt or len(times_s) < FEWEST_TOKENS:
        raise UsageError(
            f"{run.id} has too few tokens to take times from.",
            f"Use a run of at least {FEWEST_TOKENS + 1} output tokens.",
        )
    tokens = sum(step.prompt_tokens for step in prompt)
    positions = [tokens + number for number in range(1, len(times_s) + 1)]
    slope, intercept = statistics.linear_regression(positions, times_s)
    if slope <= 0:  # noise, or time that does not depend on the length of the text
        slope, intercept = 0.0, statistics.fmean(times_s)
    is_reading = bool(decoding(run)) and Waits(run=run).is_noticeable
    return Latency(
        run=run.id,
        prefill_s=sum(step.duration_s for step in prompt),
        prefill_tokens=tokens,
        reads_weights=is_reading,
        first_token_s=intercept,
        growth_s=slope,
    )


def _passes(prompt_tokens: int) -> int:
    return max(1, -(-prompt_tokens // MICRO_BATCH_TOKENS))
