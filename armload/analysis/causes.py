"""Why a token took longer than its neighbours, from the trace's columns.

A token is slow when it stands out from the tokens around it, or, where its neighbours are as
slow, from the run. It is explained by what differs in its columns from what is usual there; what
that nothing explains is classed as unexplained.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from armload.analysis.columns import ANY, Cores, is_lowered, storage_rate, storage_s
from armload.analysis.summary import generating
from armload.engines.trace import Step

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

Cause = Literal["paging", "throttling", "contention", "context growth", "unexplained"]

CAUSES: tuple[Cause, ...] = get_args(Cause)

NEIGHBOURS = 7
"""On each side."""

SLOW_DEVIATIONS, SLOW_SHARE = 5.0, 0.10
"""Slow is above the median by five robust standard deviations and by a tenth."""

FEWEST_STEPS = 2 * NEIGHBOURS

STORAGE_EXPLAINS = 0.25
"""Share of the delay, or half that of the whole step, that reading must have taken."""

BUSY_DROP = 0.10
MORE_SWITCHES = 2
TREND_FROM = 0.6

_SIGMA_PER_MAD = 1.4826


@dataclass(frozen=True, kw_only=True)
class _Columns:
    """One row per generating step; times and counts are those of one token."""

    duration_s: Floats
    storage_s: Floats
    switches: Floats
    busy: Floats
    khz: Floats


def causes(
    steps: Sequence[Step], cores: Cores = ANY, *, storage_read_bytes_per_s: int | None = None
) -> dict[int, Cause]:
    """Return the cause of each slow token, by the number of its step.

    Args:
        storage_read_bytes_per_s: what the board's storage gives, where it is known.
    """
    decode = [step for step in generating(steps) if step.duration_s > 0]
    if len(decode) < FEWEST_STEPS:
        return {}
    import numpy as np

    columns = _columns(decode, cores, storage_rate(decode, storage_read_bytes_per_s))
    around = _around(columns.duration_s)
    sigma = _SIGMA_PER_MAD * float(np.median(np.abs(columns.duration_s - around)))
    usual_s = float(np.median(columns.duration_s))
    grows = _grows(around)
    found: dict[int, Cause] = {}
    for index, step in enumerate(decode):
        took_s = float(columns.duration_s[index])
        if _is_slow(took_s, float(around[index]), sigma):
            others, base_s = _near(index, len(decode)), float(around[index])
        elif _is_slow(took_s, usual_s, sigma):
            others, base_s = np.arange(len(decode)), usual_s
        else:
            continue
        cause = _cause(columns, index, others, base_s)
        if cause == "unexplained" and grows and _stays(columns.duration_s[index:], base_s):
            cause = "context growth"
        found[step.step] = cause
    return found


def _columns(decode: Sequence[Step], cores: Cores, rate: float) -> _Columns:
    import numpy as np

    tokens = np.array([step.generated_tokens for step in decode], dtype=float)
    wall_s = np.array([step.duration_s for step in decode])
    return _Columns(
        duration_s=wall_s / tokens,
        storage_s=np.array([storage_s(step, rate) for step in decode]) / tokens,
        switches=np.array([step.involuntary_switches or 0 for step in decode]) / tokens,
        busy=np.array([step.cpu_ns for step in decode]) / 1e9 / wall_s,
        khz=np.array([cores.khz(step) for step in decode], dtype=float),
    )


def _near(index: int, length: int) -> npt.NDArray[np.intp]:
    import numpy as np

    first = max(0, min(index - NEIGHBOURS, length - 2 * NEIGHBOURS - 1))
    window: npt.NDArray[np.intp] = np.arange(first, min(length, first + 2 * NEIGHBOURS + 1))
    others: npt.NDArray[np.intp] = window[window != index]
    return others


def _around(duration_s: Floats) -> Floats:
    import numpy as np

    length = len(duration_s)
    return np.array([np.median(duration_s[_near(index, length)]) for index in range(length)])


def _is_slow(took_s: float, usual_s: float, sigma_s: float) -> bool:
    return took_s - usual_s > max(SLOW_DEVIATIONS * sigma_s, SLOW_SHARE * usual_s)


def _cause(columns: _Columns, index: int, others: npt.NDArray[np.intp], usual_s: float) -> Cause:
    import numpy as np

    took_s = float(columns.duration_s[index])
    reading_s = columns.storage_s
    more_s = float(reading_s[index] - np.median(reading_s[others]))
    if more_s >= STORAGE_EXPLAINS * (took_s - usual_s) or reading_s[index] >= took_s / 2:
        return "paging"
    if is_lowered(float(columns.khz[index]), float(np.max(columns.khz))):
        return "throttling"
    usual_busy = float(np.median(columns.busy[others]))
    switches = float(np.median(columns.switches[others]))
    is_preempted = columns.switches[index] - switches >= max(MORE_SWITCHES, switches / 2)
    if columns.busy[index] < (1 - BUSY_DROP) * usual_busy or is_preempted:
        return "contention"
    return "unexplained"


def _stays(from_here_s: Floats, base_s: float) -> bool:
    """Return whether the tokens that follow are as slow: a context never shrinks."""
    import numpy as np

    following = float(np.median(from_here_s[: 1 + NEIGHBOURS]))
    return following - base_s >= (float(from_here_s[0]) - base_s) / 2


def _grows(around: Floats) -> bool:
    """Return whether the level rises over the run (Spearman's rank correlation)."""
    import numpy as np

    if float(np.ptp(around)) == 0:
        return False
    _, place, count = np.unique(around, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(count) - (count - 1) / 2)[place]
    return float(np.corrcoef(ranks, np.arange(len(around)))[0, 1]) >= TREND_FROM
