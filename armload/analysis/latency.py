"""How the time of output tokens divides, and how long an answer would take on a board.

Nobody waits for a thousand answers at many seconds per token; a run of a hundred tokens tells what
each of them would take.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from functools import cached_property

from armload.analysis.columns import compute_s, storage_rate
from armload.analysis.run import Run
from armload.analysis.streaming import streamed_weights
from armload.analysis.summary import generating, prompting, token_times
from armload.core.errors import UsageError
from armload.core.values import Value
from armload.engines.plan import MICRO_BATCH_TOKENS
from armload.engines.trace import Step, wall_time_s

NOTICEABLE_FROM = 0.05
"""Share of the time that waiting must take, unless weights are streamed."""


def decoding(run: Run) -> list[Step]:
    """Return the steps that generate tokens and take time."""
    return [step for step in generating(run.steps) if step.duration_s > 0]


@dataclass(frozen=True, kw_only=True, eq=False)
class Waits:
    """What the output tokens of a run waited for.

    Attributes:
        run: with output tokens.
    """

    run: Run

    @property
    def is_measured(self) -> bool:
        """The engine timed the waiting; otherwise it is estimated from what was read."""
        return all(step.storage_wait_ns is not None for step in decoding(self.run))

    @cached_property
    def steps_s(self) -> list[tuple[float, float, int]]:
        """Seconds of computing and of all, and the output tokens, of each step."""
        steps, board = decoding(self.run), self.run.board
        rate = storage_rate(steps, board.storage_read_bytes_per_s)
        threads = (self.run.trace.threads if self.run.trace else None) or board.cores
        return [
            (compute_s(step, rate, threads), step.duration_s, step.output_tokens) for step in steps
        ]

    @property
    def computed_s(self) -> float:
        """Of an output token, the mean."""
        return sum(computed for computed, _, _ in self.steps_s) / self._tokens

    @property
    def waited_s(self) -> float:
        """Of an output token, the mean."""
        return self.token_s - self.computed_s

    @property
    def token_s(self) -> float:
        """Of an output token, the mean."""
        return sum(duration for _, duration, _ in self.steps_s) / self._tokens

    @property
    def share(self) -> float:
        """Of the time."""
        return self.waited_s / self.token_s

    @property
    def is_noticeable(self) -> bool:
        """Whether the tokens read weights from storage to a degree that matters."""
        return streamed_weights(self.run.trace) is not None or self.share >= NOTICEABLE_FROM

    @property
    def _tokens(self) -> int:
        return sum(tokens for _, _, tokens in self.steps_s)


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
        if self.reads_weights:
            prompt_s = self.prefill_s * _passes(prompt_tokens) / _passes(self.prefill_tokens)
        else:
            prompt_s = self.prefill_s * prompt_tokens / self.prefill_tokens
        return prompt_s + max(0.0, decoding_s)


def latency_of(run: Run) -> Latency:
    prompt, times_s = prompting(run.steps), token_times(run.trace, run.steps)
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
        prefill_s=wall_time_s(prompt),
        prefill_tokens=tokens,
        reads_weights=is_reading,
        first_token_s=intercept,
        growth_s=slope,
    )


def _passes(prompt_tokens: int) -> int:
    return max(1, -(-prompt_tokens // MICRO_BATCH_TOKENS))
