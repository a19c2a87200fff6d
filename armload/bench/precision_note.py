"""What options alone say of how precise a benchmark can be, before it is run."""

from __future__ import annotations

from collections.abc import Iterable

from armload.analysis.statistics import FEWEST_RUNS, FEWEST_TOKENS
from armload.core.values import counted


def precision_note(n_predict: Iterable[int], repeats: int | None) -> str:
    """Say what will make each result imprecise, and how to avoid it; nothing where nothing will.

    Args:
        n_predict: tokens to generate, of every run; one token alone is a run for its prompt.
        repeats: of every run; none where there will be as many as it takes.
    """
    few = sorted({n for n in n_predict if 1 < n <= FEWEST_TOKENS})
    is_repeated = repeats is not None and repeats > 1
    if repeats is None or repeats >= FEWEST_RUNS or not (few or is_repeated):
        return ""
    if not few:
        return (
            f"{counted(repeats, 'run')} of each cannot show how much runs differ; for an interval, "
            f"and to compare them, use --repeats {FEWEST_RUNS} or more."
        )
    counts = ", ".join(str(n) for n in few)
    return (
        f"With -n {counts}, the result will be imprecise: a run times the tokens after the first, "
        f"and estimating their spread takes {FEWEST_TOKENS}. Use -n {FEWEST_TOKENS + 1} or more, "
        f"or --repeats {FEWEST_RUNS} or more."
    )
