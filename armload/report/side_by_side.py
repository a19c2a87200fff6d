"""The same sweep on several boards: its cells side by side, and as a document."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from armload.bench.sweep import SweepFolder
from armload.core.errors import ArmloadError, CombinedError
from armload.core.shell import program_name
from armload.core.values import Value
from armload.report.result import BoardOutcome, Part, Result, labelled
from armload.report.settings import BOARD, NONE
from armload.report.sweep import (
    CellResult,
    SweptCells,
    cell_results,
    lacking_runs,
    notes,
    suite_view,
    sweep_view,
    swept_cells,
)


class SweptBoards(Value):
    """A sweep that was repeated on several boards.

    Attributes:
        boards: in the order in which they were named.
        notes: what a reader should know, such as that boards which are declared identical differ.
    """

    boards: tuple[BoardOutcome[SweptCells], ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class BoardsSweep(Result):
    """What became of a sweep that ran now on several boards.

    Attributes:
        journals: of each board's sweep, where it began.
        errors: by all boards, in their order; none where one did not fail.
    """

    journals: Mapping[str, SweepFolder]
    errors: Mapping[str, ArmloadError | None]

    @cached_property
    def cells(self) -> Sequence[CellResult]:
        """The results of the same cells on all boards, those of one cell together."""
        found = [
            replace(each, name={**each.name, BOARD: board})
            for board, results in self._by_board.items()
            for each in results
        ]
        names = list(dict.fromkeys(name for each in found for name in each.name))
        return [
            replace(each, name={name: each.name.get(name, NONE) for name in names})
            for each in sorted(found, key=lambda each: each.number)
        ]

    @cached_property
    def _by_board(self) -> dict[str, list[CellResult]]:
        return {
            board: cell_results(journal.sweep, *journal.results())
            for board, journal in self._begun.items()
        }

    @property
    def _begun(self) -> dict[str, SweepFolder]:
        """The sweeps in the boards' order, which is not that in which they began."""
        return {name: self.journals[name] for name in self.errors if name in self.journals}

    @property
    def error(self) -> ArmloadError | None:
        return CombinedError.of_boards(self.errors) or lacking_runs(self.cells, [*self.errors])

    def document(self) -> SweptBoards:
        return SweptBoards(
            boards=tuple(
                BoardOutcome[SweptCells].of(board, self._swept(board), error)
                for board, error in self.errors.items()
            ),
            notes=tuple(notes(self.cells)),
        )

    def _swept(self, board: str) -> SweptCells | None:
        if board not in self._by_board:
            return None
        return swept_cells(self.journals[board].sweep, self._by_board[board])

    def view(self) -> Iterable[Part]:
        if not self.cells:
            return
        journals = self._begun.values()
        yield sweep_view(self.cells)
        yield from suite_view([journal.sweep for journal in journals], self.cells)
        ids = " ".join(journal.sweep.id for journal in journals)
        rows = [*(("sweep", journal.folder) for journal in journals)]
        yield from labelled(9, [*rows, ("charts", f"{program_name()} report {ids}")])
