"""What computing a token takes on a board: from slices of the model, or from the board's facts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from armload.analysis.run import Run
from armload.analysis.summary import generating
from armload.boards.board import CpuCluster
from armload.core.values import Value
from armload.engines.prediction import Expected, PredictionNoteKind
from armload.models.model import Model
from armload.models.slices import Slices

SLICE_DOUBT = 0.08
"""Of a time that is computed from slices: on either side, beside what they left in doubt."""

UNLIKE_DOUBT = 0.25
"""The same where the slices lack some of a layer's matrices."""

PROMPT_DOUBT = 0.20
"""Of a prompt's time: longer prompts spend more on attention."""

ROOFLINE_DOUBT = 2.0
"""Factor on either side of a time that is computed from facts alone."""

IN_ORDER = ("Cortex-A35", "Cortex-A53", "Cortex-A55", "Cortex-A510", "Cortex-A520")
WEIGHTS_PER_CYCLE, WEIGHTS_PER_CYCLE_IN_ORDER = 2.0, 0.5
"""Assumed of a core that decodes quantised weights; the factor of doubt covers the types."""

MEMORY_EFFICIENCY = 0.75
"""Assumed share of the memory's read bandwidth that decoding reaches at most."""

PROMPT_GAIN = 3.0
"""Assumed: how much cheaper a token of a prompt is to compute than one of decode."""

LOAD_S = 1.0
"""Assumed of starting the program and reading the vocabulary, where neither was measured."""


class Compute(Value):
    """What computing takes on a board while nothing is read from storage.

    Attributes:
        token_s: per output token.
        prompt_token_s: per token of a prompt.
        load_s: starting the program, and reading header and vocabulary from memory.
        source: slices that ran there, or its facts.
        notes: what to know of it.
    """

    token_s: Expected
    prompt_token_s: Expected
    load_s: Expected
    source: Literal["slice", "roofline"]
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


def from_facts(
    model: Model, *, clusters: Sequence[CpuCluster], memory_bytes_per_s: int | None
) -> Compute | None:
    """Bound a token's time by the CPU's cycles and the memory's bandwidth.

    None without either, and for a model whose layers are unlike those that this was made for.
    """
    if model.unlike:
        return None
    cycles_per_s = sum(
        cluster.cores * (cluster.max_mhz or 0) * 1e6 * _weights_per_cycle(cluster.name)
        for cluster in clusters
    )
    bounds = []
    if cycles_per_s:
        active = model.parameters * model.bytes_per_token / model.size_bytes
        bounds.append(active / cycles_per_s)
    if memory_bytes_per_s:
        bounds.append(model.bytes_per_token / (MEMORY_EFFICIENCY * memory_bytes_per_s))
    if not bounds:
        return None
    token = Expected.within(max(bounds), ROOFLINE_DOUBT - 1)
    prompt_s = bounds[0] / PROMPT_GAIN if cycles_per_s else token.value
    return Compute(
        token_s=token,
        prompt_token_s=Expected.within(prompt_s, ROOFLINE_DOUBT - 1),
        load_s=Expected.within(LOAD_S, ROOFLINE_DOUBT),
        source="roofline",
        notes=("estimated from facts",),
    )


def _weights_per_cycle(name: str) -> float:
    return WEIGHTS_PER_CYCLE_IN_ORDER if name in IN_ORDER else WEIGHTS_PER_CYCLE
