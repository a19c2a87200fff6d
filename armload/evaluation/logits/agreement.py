"""How far two models' logits agree, prompt by prompt, a few positions at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from armload.core.errors import UsageError
from armload.core.values import Value
from armload.evaluation.logits.rows import Logits

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

ATOL, RTOL = 5e-3, 1e-5
"""Tolerances of ``numpy.allclose``; the second is its usual one."""

BLOCK_VALUES = 1 << 22
"""Held in memory at a time, of each side."""


class PromptAgreement(Value):
    """How far the logits of one prompt agree.

    Attributes:
        prompt: its number, from 1.
        positions: that were compared.
        is_close: by ``numpy.allclose`` with ``ATOL`` and ``RTOL``.
        max_difference: the largest absolute difference of two logits.
        top1_share: of the positions whose most likely token is the same.
    """

    prompt: str
    positions: int
    is_close: bool
    max_difference: float
    top1_share: float


class Agreement(Value):
    """How far two models' logits agree.

    Attributes:
        reference: what they are compared with.
        prompts: each of those that both have.
        missing: prompts that only one side has.
        atol, rtol: the tolerances.
        close: how many prompts are close.
        max_difference: of all of them.
        kl_mean, kl_p99: Kullback-Leibler divergence of the model's distribution from the
            reference's, in nats, over all positions.
        top1_share: over all positions.
    """

    reference: str
    prompts: tuple[PromptAgreement, ...]
    missing: tuple[str, ...]
    atol: float
    rtol: float
    close: int
    max_difference: float
    kl_mean: float
    kl_p99: float
    top1_share: float


def agreement(found: Logits, reference: Logits) -> Agreement:
    """Compare logits with a reference's."""
    import numpy as np

    common = [name for name in found.rows if name in reference.rows]
    if not common:
        raise UsageError(
            f"{found.name} and {reference.name} have no prompt in common.",
            "Compute both from the same file of prompts.",
        )
    prompts, divergences = [], []
    for name in common:
        _require_same(name, found, reference)
        one, divergence = _compared(name, found.rows[name], reference.rows[name])
        prompts.append(one)
        divergences.append(divergence)
    every = np.concatenate(divergences)
    positions = sum(each.positions for each in prompts)
    return Agreement(
        reference=reference.name,
        prompts=tuple(prompts),
        missing=tuple(sorted(set(found.rows) ^ set(reference.rows))),
        atol=ATOL,
        rtol=RTOL,
        close=sum(each.is_close for each in prompts),
        max_difference=max(each.max_difference for each in prompts),
        kl_mean=float(every.mean()),
        kl_p99=float(np.quantile(every, 0.99)),
        top1_share=sum(each.top1_share * each.positions for each in prompts) / positions,
    )


def _require_same(name: str, found: Logits, reference: Logits) -> None:
    one, other = found.rows[name].shape, reference.rows[name].shape
    if one != other:
        raise UsageError(
            f"Prompt {name}: {found.name} has {one[0]} positions of {one[1]} logits, "
            f"{reference.name} {other[0]} of {other[1]}.",
            "Compare models with the same vocabulary, from the same file of prompts.",
        )
    tokens = found.tokens.get(name), reference.tokens.get(name)
    if None not in tokens and tokens[0] != tokens[1]:
        raise UsageError(
            f"Prompt {name}: {found.name} and {reference.name} tokenize it differently.",
            "Compare models with the same vocabulary, from the same file of prompts.",
        )


def _compared(
    name: str, rows: npt.NDArray[Any], reference: npt.NDArray[Any]
) -> tuple[PromptAgreement, Floats]:
    import numpy as np

    count, columns = rows.shape
    step = max(1, BLOCK_VALUES // columns)
    is_close, most, same = True, 0.0, 0
    divergences = []
    for begin in range(0, count, step):
        a = np.asarray(rows[begin : begin + step], dtype=np.float64)
        b = np.asarray(reference[begin : begin + step], dtype=np.float64)
        is_close = is_close and bool(np.allclose(a, b, atol=ATOL, rtol=RTOL))
        most = max(most, float(np.abs(a - b).max()))
        same += int((a.argmax(axis=1) == b.argmax(axis=1)).sum())
        a, b = _log_softmax(a), _log_softmax(b)
        divergences.append((np.exp(b) * (b - a)).sum(axis=1))
    found = PromptAgreement(
        prompt=name,
        positions=count,
        is_close=is_close,
        max_difference=most,
        top1_share=same / count,
    )
    return found, np.concatenate(divergences)


def _log_softmax(logits: Floats) -> Floats:
    import numpy as np

    shifted = logits - logits.max(axis=1, keepdims=True)
    result: Floats = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return result
