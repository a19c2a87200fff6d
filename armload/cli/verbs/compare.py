"""``compare``: whether B is slower than A, and how sure that is."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Protocol

from armload.cli.options import OutputOptions
from armload.cli.run_filter import RunFilter
from armload.cli.verb import verb
from armload.core.options import Option

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import RenderableType

    from armload.runs.selection import RunSelection

_SIDE = (
    "a run (id, folder, latest, or BOARD:MODEL, where BOARD may be @LABEL or a pattern), several "
    "runs (a,b,c), a sweep or one of its cells (SWEEP/2), a benchmark's file, a load, or a tuning"
)


@dataclass(frozen=True, kw_only=True)
class _Judged:
    """What a gate needs to know of a comparison.

    Attributes:
        low_at: the least that the ratio may be, with a probability of error.
    """

    finding: str
    low_at: Callable[[float], float]
    sentence: str


class _OfKind(Protocol):
    def __call__(self, a: str, b: str, *, as_json: bool) -> list[_Judged]: ...


class CompareOptions(RunFilter, OutputOptions):
    """Two sides, and how much slower the second may be."""

    a: Annotated[str, Option(f"the baseline: {_SIDE}", is_argument=True)]
    b: Annotated[str, Option("what to compare with it, in the same form", is_argument=True)]
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
    from armload.core.errors import UsageError
    from armload.serving.loads import LoadFolder
    from armload.tuning.record import TuningFolder

    allowed = _share(options.fail_if_slower) if options.fail_if_slower else None
    selection = options.selection()
    of_kind: _OfKind = partial(_runs, selection)
    for kind, compare_kind in ((LoadFolder.kind, _loads), (TuningFolder.kind, _tunings)):
        if kind.is_meant(options.a) != kind.is_meant(options.b):
            raise UsageError(
                f"{options.a} and {options.b}: a {kind.noun} can only be compared with another "
                f"{kind.noun}."
            )
        if kind.is_meant(options.a):
            options = options.refuse_filter(f"a {kind.noun}")
            of_kind = compare_kind
    judged = of_kind(options.a, options.b, as_json=options.as_json)
    if allowed is not None:
        sys.stdout.flush()  # the report precedes the error where one file takes both
        _gate(judged, allowed, options.fail_if_slower)


def _runs(selection: RunSelection | None, a: str, b: str, *, as_json: bool) -> list[_Judged]:
    """Compare runs, and return what a gate needs to know."""
    from armload.analysis.compare import Comparison
    from armload.analysis.compare import compare as compare_sides
    from armload.analysis.statistics import lower_bound
    from armload.analysis.wording.comparisons import not_comparable
    from armload.bench.run_names import read_side
    from armload.cli import terminal
    from armload.cli.streams import show_document
    from armload.core.values import ValueList
    from armload.report.comparison import boards_table, comparison_view, sentence

    progress = terminal.progress()
    compared = compare_sides(read_side(a, selection, progress), read_side(b, selection, progress))
    if as_json:
        show_document(ValueList[Comparison](tuple(compared)))
    else:
        table = boards_table(compared)
        _show([*(comparison_view(each) for each in compared), *([table] if table else [])])
    return [
        _Judged(
            finding="not comparable" if each.subjects else each.finding,
            low_at=partial(
                lower_bound, each.measured[0].ratio, min(len(each.a.names), len(each.b.names))
            )
            if each.measured
            else _unknown,
            sentence=not_comparable(each.subjects) if each.subjects else sentence(each),
        )
        for each in compared
    ]


def _loads(a: str, b: str, *, as_json: bool) -> list[_Judged]:
    """Compare two loads, and return what a gate needs to know."""
    from armload.analysis.load.comparison import LoadComparison, compare_loads
    from armload.cli.streams import show_document
    from armload.core.values import ValueList
    from armload.report.load.comparison import load_comparison_view, sentence
    from armload.report.load.loaded import LoadView
    from armload.serving.loads import LoadFolder

    one, other = LoadView.of(LoadFolder.find(a)), LoadView.of(LoadFolder.find(b))
    compared = compare_loads(
        one.load,
        [(point.observed, point.assessed) for point in one.points],
        other.load,
        [(point.observed, point.assessed) for point in other.points],
    )
    if as_json:
        show_document(ValueList[LoadComparison](tuple(compared)))
    else:
        _show([load_comparison_view(each) for each in compared])
    return [
        _Judged(
            finding=each.finding,
            low_at=each.measured[0].low_at if each.measured else _unknown,
            sentence=sentence(each),
        )
        for each in compared
    ]


def _tunings(a: str, b: str, *, as_json: bool) -> list[_Judged]:
    """Compare two searches for settings, and return what a gate needs to know."""
    from armload.analysis.statistics import lower_bound
    from armload.cli.streams import show_document
    from armload.core.values import ValueList
    from armload.report.tuning.comparison import sentence, tuning_comparison_view
    from armload.tuning.comparison import TuningComparison, compare_tunings
    from armload.tuning.record import TuningFolder

    compared = compare_tunings(TuningFolder.find(a), TuningFolder.find(b))
    if as_json:
        show_document(ValueList[TuningComparison]((compared,)))
    else:
        _show([tuning_comparison_view(compared)])
    winners = compared.measured[0]
    return [
        _Judged(
            finding=compared.finding,
            low_at=partial(lower_bound, winners.ratio, min(winners.a_runs, winners.b_runs)),
            sentence=sentence(compared),
        )
    ]


def _show(views: Sequence[RenderableType]) -> None:
    from armload.cli import terminal

    for number, view in enumerate(views):
        if number:
            terminal.show("")
        terminal.show(view)


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


def _unknown(_level: float) -> float:
    return 0.0


def _gate(compared: Sequence[_Judged], allowed: float, as_typed: str) -> None:
    """Raise when B is too slow, or when nobody can tell: a gate errs in neither direction."""
    from armload.analysis.statistics import surely_above
    from armload.core.errors import InconclusiveError, SlowerError, UsageError

    for each in compared:
        if each.finding == "not comparable":
            raise UsageError(
                f"--fail-if-slower {as_typed}: {each.sentence}",
                "A gate needs runs of the same model and plan on the same board.",
            )
    judged = [each for each in compared if each.finding != "inconclusive"]
    surely_slower = surely_above(1 + allowed, [each.low_at for each in judged])
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
