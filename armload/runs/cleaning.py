"""Cleaning a board while nobody else uses it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from armload.boards.board import Board
from armload.boards.connect import connect, is_blank
from armload.core.progress import Progress
from armload.core.values import Value
from armload.deploy.clean import BoardItem, Selection, contents, removable, remove
from armload.deploy.lease import leased


class Cleaned(Value):
    """What was removed from a board, and what was left there."""

    removed: tuple[BoardItem, ...]
    kept: tuple[BoardItem, ...]
    freed_bytes: int


def clean(
    board: Board,
    selection: Selection,
    progress: Progress,
    *,
    agreed: Callable[[Sequence[BoardItem]], bool],
    wait_s: float,
) -> Cleaned:
    """Remove what may go; the lease keeps runs and copies away meanwhile.

    Args:
        agreed: is shown the list first, and asked.

    Raises:
        ArmloadError: the board does not answer, is in use, or cannot remove something.
    """
    if is_blank(board, progress):
        return Cleaned(removed=(), kept=(), freed_bytes=0)
    host = connect(board, progress)
    try:
        found = contents(host, board.workdir)
        chosen = removable(found, selection)
        if not chosen or not agreed(chosen):
            return Cleaned(removed=(), kept=found, freed_bytes=0)
        with leased(
            host,
            board.workdir,
            progress,
            wait_s=wait_s,
            beside=lambda: connect(board, progress),
        ):
            # While a person thought, or somebody else had the board, it may have changed.
            found = contents(host, board.workdir)
            names = {entry.name for entry in chosen}
            gone = [entry for entry in removable(found, selection) if entry.name in names]
            with progress.step(f"Cleaning {board.name}"):
                remove(host, board.workdir, gone)
        return Cleaned(
            removed=tuple(gone),
            kept=tuple(entry for entry in found if entry not in gone),
            freed_bytes=sum(entry.size_bytes or 0 for entry in gone),
        )
    finally:
        host.close()
