"""How the time of output tokens divides into waiting for storage and computing."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from armload.analysis.run import Run
from armload.analysis.storage_share import compute_s, storage_rate
from armload.analysis.streaming import streamed_weights
from armload.analysis.summary import generating
from armload.engines.trace import Step

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
