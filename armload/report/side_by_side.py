"""The same sweep on several boards: its cells side by side, and as a document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from armload.bench.sweep import SweepFolder
from armload.core.errors import ArmloadError
from armload.core.values import Value
from armload.report.failure import Failure
from armload.report.settings import BOARD, NONE
from armload.report.sweep import CellResult, SweptCells, cell_results, notes, swept_cells


class SweptBoard(Value):
    """What became of a sweep on one of several boards.

    Attributes:
        board: its name.
        swept: the sweep there, as far as it came; none if it did not begin.
        error: why it failed; none if it did not.
    """

    board: str
    swept: SweptCells | None
    error: Failure | None


class SweptBoards(Value):
    """A sweep that was repeated on several boards.

    Attributes:
        boards: in the order in which they were named.
        notes: what a reader should know, such as that boards which are declared identical differ.
    """

    boards: tuple[SweptBoard, ...]
    notes: tuple[str, ...]


def results_on_boards(journals: Mapping[str, SweepFolder]) -> list[CellResult]:
    """Return the results of the same cells on several boards, those of one cell together.

    Args:
        journals: of each board's sweep.
    """
    found = [
        replace(each, name={**each.name, BOARD: board})
        for board, journal in journals.items()
        for each in cell_results(journal.sweep, *journal.results())
    ]
    names = list(dict.fromkeys(name for each in found for name in each.name))
    return [
        replace(each, name={name: each.name.get(name, NONE) for name in names})
        for each in sorted(found, key=lambda each: each.number)
    ]


def swept_boards(
    journals: Mapping[str, SweepFolder],
    errors: Mapping[str, ArmloadError | None],
    results: Sequence[CellResult],
) -> SweptBoards:
    """Return what became of a sweep on several boards, for programs."""
    return SweptBoards(
        boards=tuple(
            SweptBoard(
                board=board,
                swept=_swept(journals[board]) if board in journals else None,
                error=Failure.of(error) if error else None,
            )
            for board, error in errors.items()
        ),
        notes=tuple(notes(results)),
    )


def _swept(journal: SweepFolder) -> SweptCells:
    return swept_cells(journal.sweep, cell_results(journal.sweep, *journal.results()))
