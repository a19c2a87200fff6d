"""``compare``: whether B is slower than A, and how sure that is."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated

from armload.cli.options import OutputOptions
from armload.cli.run_filter import RunFilter
from armload.cli.verb import verb
from armload.core.options import Option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from armload.analysis.comparison import Comparison
    from armload.report.result import Result

_SIDE = (
    "a run (id, folder, latest, or BOARD:MODEL, where BOARD may be @LABEL or a pattern), several "
    "runs (a,b,c), a sweep or one of its cells (SWEEP/2), a benchmark's file, a load, or a tuning"
)


class CompareOptions(RunFilter, OutputOptions):
    """Two sides, and how much slower the second may be."""

    a: Annotated[str, Option(f"the baseline: {_SIDE}", is_argument=True, takes="measurement")]
    b: Annotated[
        str,
        Option("what to compare with it, in the same form", is_argument=True, takes="measurement"),
    ]
    fail_if_slower: Annotated[
        str,
        Option(
            "exit with 11 if B is slower by more than this, such as 3%, with 95% confidence; with "
            "12 if runs are invalid or not comparable",
            "PERCENT",
            harmless="anywhere",
        ),
    ] = ""


@verb(CompareOptions)
def compare(options: CompareOptions) -> Result:
    """Show how much faster or slower B is, with a confidence interval.

    Example: armload compare kitchen:llama-3.2-1b-q4_0 latest --fail-if-slower 3%
    """
    from armload.report.comparison import ComparisonResult, SlowdownLimit

    limit = None
    if options.fail_if_slower:
        share = _share(options.fail_if_slower)
        limit = SlowdownLimit(share=share, as_typed=options.fail_if_slower)
    return ComparisonResult(compared=_compared(options), limit=limit)


def _compared(options: CompareOptions) -> Sequence[Comparison]:
    """Compare two sides of one kind."""
    from armload.analysis.compare import compare as compare_runs
    from armload.bench.run_names import read_side
    from armload.cli import terminal
    from armload.evaluation.sides import with_accuracies
    from armload.report.kinds import KINDS

    a, b = options.a, options.b
    for kind in KINDS:
        if kind.compare and (kind.is_meant(a) or kind.is_meant(b)):
            kind.check_both(a, b)
            options.refuse_filter(f"a {kind.noun}")
            return kind.compare(kind.journal.find(a), kind.journal.find(b))
    selection, progress = options.selection(), terminal.progress()
    one, other = read_side(a, selection, progress), read_side(b, selection, progress)
    if one[0].is_watched != other[0].is_watched:
        one, other = with_accuracies(one), with_accuracies(other)
    return compare_runs(one, other)


def _share(text: str) -> float:
    from armload.core.errors import UsageError

    try:
        share = float(text.strip().removesuffix("%")) / 100
    except ValueError:
        share = math.nan
    if not 0 <= share < 10:
        raise UsageError(
            "--fail-if-slower: must be a percentage of 0 or more and below 1000, such as 3%, but "
            f"is {text!a:.60}."
        )
    return share
