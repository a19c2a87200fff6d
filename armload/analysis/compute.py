"""What computing a token takes on a board, and how it follows from slices of the model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from armload.analysis.run import Run
from armload.analysis.summary import generating
from armload.core.values import Value
from armload.engines.prediction import Expected, PredictionNoteKind
from armload.models.slices import Slices

SLICE_DOUBT = 0.08
"""Of a time that is computed from slices: on either side, beside what they left in doubt."""

UNLIKE_DOUBT = 0.25
"""The same where the slices lack some of a layer's matrices."""

PROMPT_DOUBT = 0.20
"""Of a prompt's time: longer prompts spend more on attention."""


class Compute(Value):
    """What computing takes on a board while nothing is read from storage.

    Attributes:
        token_s: per output token.
        prompt_token_s: per token of a prompt.
        load_s: starting the program, and reading header and vocabulary from memory.
        source: slices that ran there, or its facts.
        is_memory_bound: the memory limits a token, not the cores; none where that is not known.
        notes: what to know of it.
    """

    token_s: Expected
    prompt_token_s: Expected
    load_s: Expected
    source: Literal["slice", "roofline"]
    is_memory_bound: bool | None = None
    notes: tuple[PredictionNoteKind, ...] = ()

    def prompt_s(self, tokens: int) -> Expected:
        """Return the time of a prompt, which is no less than that of a token."""
        return self.token_s.longer(self.prompt_token_s * float(tokens))


class SliceTimes(Value):
    """What one slice took.

    Attributes:
        token_s: median per output token.
        prompt_s: of the whole prompt.
        prompt_tokens: of the prompt.
        load_s: from the start until the prompt.
    """

    token_s: float
    prompt_s: float
    prompt_tokens: int
    load_s: float


def times_of(run: Run) -> SliceTimes | None:
    """Return what a slice's run says; none where it was cut short."""
    summary = run.summary
    steps = sorted(step.duration_s for step in generating(run.steps))
    if not steps or not summary.prefill_s or not summary.prefill_tokens or not summary.ttft_s:
        return None
    return SliceTimes(
        token_s=_quiet_middle(steps),
        prompt_s=summary.prefill_s,
        prompt_tokens=summary.prefill_tokens,
        load_s=max(0.0, summary.ttft_s - summary.prefill_s),
    )


def _quiet_middle(ascending: Sequence[float]) -> float:
    return ascending[len(ascending) // 2]


def from_slices(slices: Slices, layers: SliceTimes, thin: SliceTimes) -> Compute:
    """Scale what the slices took to the whole model.

    Both have the same output and the same cost per token of the engine, so their difference is
    what the layers take; it grows with the bytes of the layers that a token reads. The rest
    grows with the rows of the output.
    """
    layers_bytes, thin_bytes = slices.layers.layer_bytes, slices.thin.layer_bytes
    scale = slices.layer_bytes / (layers_bytes - thin_bytes)
    layer_s = max(0.0, layers.token_s - thin.token_s) * scale
    output_bytes = slices.thin.size_bytes - thin_bytes
    output_s = thin.token_s * output_bytes / (output_bytes + thin_bytes)
    output_s *= slices.vocabulary / slices.rows
    prompt_layers_s = max(0.0, layers.prompt_s - thin.prompt_s) * scale / layers.prompt_tokens
    doubt = SLICE_DOUBT if slices.is_exact else UNLIKE_DOUBT
    load_s = max(thin.load_s - thin.token_s, 0.0)
    return Compute(
        token_s=Expected.within(layer_s + output_s, doubt),
        prompt_token_s=Expected.within(prompt_layers_s, max(doubt, PROMPT_DOUBT)),
        load_s=Expected(
            value=load_s * math.sqrt(slices.vocabulary / slices.rows),
            low=load_s,
            high=load_s * slices.vocabulary / slices.rows,
        ),
        source="slice",
        notes=() if slices.is_exact else ("scaled from other matrices",),
    )
