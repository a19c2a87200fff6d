"""``compare``: whether B is slower than A, and how sure that is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from invoke.context import Context
from invoke.tasks import task

from armload.cli.verb import Verb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from armload.bench.compare import Comparison

_SIDE = "a run's id or folder, latest, BOARD:MODEL, a benchmark's file, or several with commas"


@task(
    klass=Verb,
    positional=["a", "b"],
    help={
        "a": f"what to compare with: {_SIDE}",
        "b": "what is compared, named likewise",
        "fail-if-slower": "exit with 11 when B is surely slower than by so much, such as 3%",
        "json": "print one JSON document",
    },
)
def compare(c: Context, a: str, b: str, fail_if_slower: str = "", json: bool = False) -> None:
    """Say whether B is faster or slower than A, and how sure that is.

    Example: armload compare kitchen:llama-3.2-1b-q4_0 latest --fail-if-slower 3%
    """
    del c
    import json as json_format

    from armload.bench.compare import compare as compare_sides
    from armload.bench.sides import read_side
    from armload.cli import terminal
    from armload.report.comparison import comparison_view

    allowed = _share(fail_if_slower) if fail_if_slower else None
    compared = compare_sides(read_side(a), read_side(b))
    if json:
        documents = [each.model_dump(mode="json") for each in compared]
        terminal.show_json(json_format.dumps(documents, indent=1, ensure_ascii=False))
    else:
        for number, each in enumerate(compared):
            if number:
                terminal.results().print()
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
            f"--fail-if-slower {text}: this is no percentage.", "Write it as --fail-if-slower 3%."
        )
    return share


def _gate(compared: Sequence[Comparison], allowed: float, as_typed: str) -> None:
    """Raise when B is too slow, or when nobody can tell: a gate must not open by mistake."""
    from armload.core.errors import SlowerError, UsageError
    from armload.report.comparison import sentence

    for each in compared:
        if each.finding == "not comparable":
            raise UsageError(
                f"--fail-if-slower {as_typed}: {sentence(each)}",
                "Compare runs of the same model and plan on the same board.",
            )
    slower = [each for each in compared if each.measured[0].ratio.low > 1 + allowed]
    if slower:
        raise SlowerError(
            f"Slower than {as_typed} allows: {' '.join(sentence(each) for each in slower)}",
            "Both sides are kept; look at them with armload show --run ID.",
        )
