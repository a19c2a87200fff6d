"""A connection to a board that can be made again."""

from __future__ import annotations

from armload.boards.board import Board
from armload.boards.connect import connect
from armload.boards.host import Host
from armload.core.progress import Progress


class Connection:
    """A connection to a board; a virtual one that went off comes back at another address.

    Args:
        board: what to reach; a virtual one is started when it is off.
    """

    def __init__(self, board: Board, progress: Progress) -> None:
        self.board = board
        self._progress = progress
        self.host = connect(board, progress)

    def again(self) -> None:
        """Connect anew, and switch a virtual board on again.

        Raises:
            ConnectError, MissingToolError: as for ``connect``.
        """
        self.host.close()
        self.host = connect(self.board, self._progress)

    def beside(self) -> Host:
        """Open another connection to the same board."""
        return connect(self.board, self._progress)

    def close(self) -> None:
        """End the connection."""
        self.host.close()
