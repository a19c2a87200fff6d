"""``compare``: whether B is slower than A, and how sure that is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from invoke.context import Context
from invoke.tasks import task

from armload.cli.flags import JSON_HELP
from armload.cli.verb import Verb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from armload.analysis.compare import Comparison

_SIDE = "a run's id or folder, latest, BOARD:MODEL, or a benchmark's file; several: a,b,c"


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
    from armload.core.values import ValueList
    from armload.report.comparison import comparison_view

    allowed = _share(fail_if_slower) if fail_if_slower else None
    compared = compare_sides(read_side(a), read_side(b))
    if json:
        show_document(ValueList[Comparison](tuple(compared)))
    else:
        for number, each in enumerate(compared):
            if number:
                terminal.show("")
            terminal.show(comparison_view(each))
    if allowed is not None:
        _gate(compared, allowed, fail_if_slower)


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
    from armload.core.errors import InconclusiveError, SlowerError, UsageError
    from armload.report.comparison import sentence

    for each in compared:
        if each.finding == "not comparable":
            raise UsageError(
                f"--fail-if-slower {as_typed}: {sentence(each)}",
                "Compare runs of the same model and plan on the same board.",
            )
    doubtful = [each for each in compared if each.a.doubts or each.b.doubts]
    slower = [
        each
        for each in compared
        if each not in doubtful and each.measured[0].ratio.low > 1 + allowed
    ]
    if slower:
        raise SlowerError(
            f"Slower than {as_typed} allows: {' '.join(sentence(each) for each in slower)}",
            "Look at the runs with: armload show ID",
        )
    if doubtful:
        doubts = [doubt for each in doubtful for doubt in (*each.a.doubts, *each.b.doubts)]
        raise InconclusiveError(
            f"--fail-if-slower {as_typed}: inconclusive, because not every run is valid: "
            f"{' '.join(dict.fromkeys(doubts))}",
            "Repeat the runs that are not valid, and compare again.",
        )
