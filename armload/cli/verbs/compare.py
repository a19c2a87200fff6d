"""``compare``: whether B is slower than A, and how sure that is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from invoke.context import Context
from invoke.tasks import task

from armload.cli.flags import JSON_HELP
from armload.cli.verb import Verb

if TYPE_CHECKING:
    from collections.abc import Sequence

_SIDE = (
    "a run's id or folder, latest, BOARD:MODEL, or a benchmark's file; several: a,b,c; or a load"
)


@dataclass(frozen=True, kw_only=True)
class _Judged:
    """What a gate needs to know of a comparison; ``low`` is the least that the ratio may be."""

    finding: str
    low: float
    doubts: tuple[str, ...]
    sentence: str


@task(
    klass=Verb,
    positional=["a", "b"],
    help={
        "a": f"the baseline: {_SIDE}",
        "b": "what to compare with it, given in the same way",
        "fail-if-slower": "exit with 11 if B is slower by more than this, such as 3%, with 95 % "
        "confidence; with 12 if runs that are not valid leave that open",
        **JSON_HELP,
    },
)
def compare(c: Context, a: str, b: str, fail_if_slower: str = "", json: bool = False) -> None:
    """Say whether B is faster or slower than A, with the confidence interval.

    Example: armload compare kitchen:llama-3.2-1b-q4_0 latest --fail-if-slower 3%
    """
    del c
    from armload.analysis.compare import Comparison
    from armload.analysis.compare import compare as compare_sides
    from armload.bench.sides import read_side
    from armload.cli import terminal
    from armload.cli.document import show_document
    from armload.core.errors import UsageError
    from armload.core.values import ValueList
    from armload.report.comparison import comparison_view, sentence
    from armload.serving.loads import LOADS

    allowed = _share(fail_if_slower) if fail_if_slower else None
    if LOADS.are_meant(a) != LOADS.are_meant(b):
        raise UsageError(f"{a} and {b}: a load can only be compared with another load.")
    if LOADS.are_meant(a):
        judged = _loads(a, b, as_json=json)
        if allowed is not None:
            _gate(judged, allowed, fail_if_slower)
        return
    compared = compare_sides(read_side(a), read_side(b))
    if json:
        show_document(ValueList[Comparison](tuple(compared)))
    else:
        for number, each in enumerate(compared):
            if number:
                terminal.show("")
            terminal.show(comparison_view(each))
    if allowed is not None:
        judged = [
            _Judged(
                finding=each.finding,
                low=each.measured[0].ratio.low if each.measured else 0.0,
                doubts=(*each.a.doubts, *each.b.doubts),
                sentence=sentence(each),
            )
            for each in compared
        ]
        _gate(judged, allowed, fail_if_slower)


def _loads(a: str, b: str, *, as_json: bool) -> list[_Judged]:
    """Compare two loads, and return what a gate needs to know."""
    from armload.analysis.load.comparison import LoadComparison, compare_loads
    from armload.cli import terminal
    from armload.cli.document import show_document
    from armload.core.values import ValueList
    from armload.report.load.comparison import load_comparison_view, sentence
    from armload.report.load.loaded import loaded_of
    from armload.serving.loads import find_load

    one, other = loaded_of(find_load(a)), loaded_of(find_load(b))
    compared = compare_loads(
        one.load,
        [(point.observed, point.assessed) for point in one.points],
        other.load,
        [(point.observed, point.assessed) for point in other.points],
    )
    if as_json:
        show_document(ValueList[LoadComparison](tuple(compared)))
    else:
        for number, each in enumerate(compared):
            if number:
                terminal.show("")
            terminal.show(load_comparison_view(each))
    return [
        _Judged(
            finding=each.finding,
            low=each.measured[0].ratio.low if each.measured else 0.0,
            doubts=each.doubts,
            sentence=sentence(each),
        )
        for each in compared
    ]


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
