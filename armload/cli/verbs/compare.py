"""``compare``: whether B is slower than A, and how sure that is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from armload.cli.options import OutputOptions
from armload.cli.verb import verb
from armload.core.options import Option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

_SIDE = (
    "a run's id or folder, latest, BOARD:MODEL, or a benchmark's file; several: a,b,c; or a load "
    "or a tuning"
)


@dataclass(frozen=True, kw_only=True)
class _Judged:
    """What a gate needs to know of a comparison; ``low`` is the least that the ratio may be."""

    finding: str
    low: float
    doubts: tuple[str, ...]
    sentence: str


class CompareOptions(OutputOptions):
    """Two sides, and how much slower the second may be."""

    a: Annotated[str, Option(f"the baseline: {_SIDE}", is_argument=True)]
    b: Annotated[str, Option("what to compare with it, in the same form", is_argument=True)]
    fail_if_slower: Annotated[
        str,
        Option(
            "exit with 11 if B is slower by more than this, such as 3%, with 95% confidence; with "
            "12 if invalid runs make that inconclusive",
            "PERCENT",
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
    of_kind = _runs
    for kind, compare_kind in ((LoadFolder.kind, _loads), (TuningFolder.kind, _tunings)):
        if kind.is_meant(options.a) != kind.is_meant(options.b):
            raise UsageError(
                f"{options.a} and {options.b}: a {kind.noun} can only be compared with another "
                f"{kind.noun}."
            )
        if kind.is_meant(options.a):
            of_kind = compare_kind
    judged = of_kind(options.a, options.b, as_json=options.as_json)
    if allowed is not None:
        _gate(judged, allowed, options.fail_if_slower)


def _runs(a: str, b: str, *, as_json: bool) -> list[_Judged]:
    """Compare runs, and return what a gate needs to know."""
    from armload.analysis.compare import Comparison
    from armload.analysis.compare import compare as compare_sides
    from armload.bench.references import read_side
    from armload.cli.streams import show_document
    from armload.core.values import ValueList
    from armload.report.comparison import comparison_view, sentence

    compared = compare_sides(read_side(a), read_side(b))
    if as_json:
        show_document(ValueList[Comparison](tuple(compared)))
    else:
        _show([comparison_view(each) for each in compared])
    return [
        _Judged(
            finding=each.finding,
            low=each.measured[0].ratio.low if each.measured else 0.0,
            doubts=(*each.a.doubts, *each.b.doubts),
            sentence=sentence(each),
        )
        for each in compared
    ]


def _loads(a: str, b: str, *, as_json: bool) -> list[_Judged]:
    """Compare two loads, and return what a gate needs to know."""
    from armload.analysis.load.comparison import LoadComparison, compare_loads
    from armload.cli.streams import show_document
    from armload.core.values import ValueList
    from armload.report.load.comparison import load_comparison_view, sentence
    from armload.report.load.loaded import loaded_of
    from armload.serving.loads import LoadFolder

    one, other = loaded_of(LoadFolder.find(a)), loaded_of(LoadFolder.find(b))
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
            low=each.measured[0].ratio.low if each.measured else 0.0,
            doubts=tuple(doubt.sentence for doubt in each.doubts),
            sentence=sentence(each),
        )
        for each in compared
    ]


def _tunings(a: str, b: str, *, as_json: bool) -> list[_Judged]:
    """Compare two searches for settings, and return what a gate needs to know."""
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
    return [
        _Judged(
            finding=compared.finding,
            low=compared.measured[0].ratio.low,
            doubts=tuple(doubt.sentence for doubt in compared.doubts),
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


def _gate(compared: Sequence[_Judged], allowed: float, as_typed: str) -> None:
    """Raise when B is too slow, or when nobody can tell: a gate errs in neither direction."""
    from armload.core.errors import InconclusiveError, SlowerError, UsageError

    for each in compared:
        if each.finding == "not comparable":
            raise UsageError(
                f"--fail-if-slower {as_typed}: {each.sentence}",
                "Compare runs of the same model and plan on the same board.",
            )
    doubtful = [each for each in compared if each.doubts]
    slower = [each for each in compared if not each.doubts and each.low > 1 + allowed]
    if slower:
        raise SlowerError(
            f"Slower than {as_typed} allows: {' '.join(each.sentence for each in slower)}",
            "Look at the runs with: armload show ID",
        )
    if doubtful:
        doubts = [doubt for each in doubtful for doubt in each.doubts]
        raise InconclusiveError(
            f"--fail-if-slower {as_typed}: inconclusive, because not every run is valid: "
            f"{' '.join(dict.fromkeys(doubts))}",
            "Repeat the runs that are not valid, and compare again.",
        )
