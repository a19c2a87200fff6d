"""``compare``: whether B is slower than A, and how sure that is."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

from armload.cli.options import OutputOptions
from armload.cli.run_filter import RunFilter
from armload.cli.verb import verb
from armload.core.options import Option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from armload.analysis.comparison import Comparison

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
            "12 if invalid runs make that inconclusive",
            "PERCENT",
            harmless="anywhere",
        ),
    ] = ""


@verb(CompareOptions)
def compare(options: CompareOptions) -> None:
    """Show how much faster or slower B is than A, with a confidence interval.

    Example: armload compare kitchen:llama-3.2-1b-q4_0 latest --fail-if-slower 3%
    """
    from armload.analysis.comparison import Comparison
    from armload.cli import terminal
    from armload.cli.streams import show_document
    from armload.core.values import ValueList

    allowed = _share(options.fail_if_slower) if options.fail_if_slower else None
    compared = _compared(options)
    if options.as_json:
        show_document(ValueList[Comparison](tuple(compared)))
    else:
        from armload.report.comparison import boards_table, comparison_view

        for number, each in enumerate(compared):
            if number:
                terminal.show("")
            terminal.show(comparison_view(each))
        if (table := boards_table(compared)) is not None:
            terminal.show("")
            terminal.show(table)
    if allowed is not None:
        sys.stdout.flush()  # the report precedes the error where one file takes both
        _gate(compared, allowed, options.fail_if_slower)


def _compared(options: CompareOptions) -> Sequence[Comparison]:
    """Compare two sides of one kind."""
    from armload.core.errors import UsageError
    from armload.serving.loads import LoadFolder
    from armload.tuning.record import TuningFolder

    a, b = options.a, options.b
    for kind in (LoadFolder.kind, TuningFolder.kind):
        if kind.is_meant(a) != kind.is_meant(b):
            raise UsageError(
                f"{a} and {b}: a {kind.noun} can only be compared with another {kind.noun}."
            )
        if kind.is_meant(a):
            options.refuse_filter(f"a {kind.noun}")
    if LoadFolder.kind.is_meant(a):
        from armload.analysis.load.comparison import compare_loads
        from armload.report.load.loaded import LoadView

        return compare_loads(
            *LoadView.of(LoadFolder.find(a)).compared, *LoadView.of(LoadFolder.find(b)).compared
        )
    if TuningFolder.kind.is_meant(a):
        from armload.tuning.comparison import compare_tunings

        return [compare_tunings(TuningFolder.find(a), TuningFolder.find(b))]
    from armload.analysis.compare import compare as compare_runs
    from armload.bench.run_names import read_side
    from armload.cli import terminal

    selection, progress = options.selection(), terminal.progress()
    return compare_runs(read_side(a, selection, progress), read_side(b, selection, progress))


def _share(text: str) -> float:
    from armload.core.errors import UsageError

    try:
        share = float(text.strip().removesuffix("%")) / 100
    except ValueError:
        share = -1.0
    if not 0 <= share < 10:
        raise UsageError(
            f"--fail-if-slower {text}: must be a percentage.", "Example: --fail-if-slower 3%"
        )
    return share


def _gate(compared: Sequence[Comparison], allowed: float, as_typed: str) -> None:
    """Raise when B is too slow, or when nobody can tell: a gate errs in neither direction."""
    from armload.analysis.comparison import not_comparable
    from armload.analysis.statistics import surely_above
    from armload.core.errors import InconclusiveError, SlowerError, UsageError

    for each in compared:
        if not each.is_gated:
            why = not_comparable(each.subjects) if each.subjects else each.sentence
            raise UsageError(
                f"--fail-if-slower {as_typed}: {why}",
                "A gate needs runs of the same model and plan on the same board.",
            )
    judged = [each for each in compared if each.finding != "inconclusive"]
    surely_slower = surely_above(1 + allowed, [each.figures[0].low_at for each in judged])
    slower = [judged[number] for number in surely_slower]
    if slower:
        raise SlowerError(
            f"Slower than {as_typed} allows: {' '.join(each.sentence for each in slower)}",
            "Look at the runs with: armload show ID",
        )
    if len(judged) < len(compared):
        raise InconclusiveError(
            f"--fail-if-slower {as_typed}: inconclusive. The report says why.",
            "Repeat the runs that it names, and compare again.",
        )
