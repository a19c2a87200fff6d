"""How boards are reached: over connections from this machine, or through gateways."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from armload.boards.board import Board, load_board
from armload.core.progress import Progress
from armload.models.model import Model
from armload.runs.fetch import Pulled
from armload.runs.fetch import pull as pull_from
from armload.runs.placing import Deployed, put_in_place
from armload.runs.reach import BoardReach, ConnectedBoards
from armload.tuning.reach import ConnectedTuningBoard, TuningBoard


class FleetBoard(TuningBoard, Protocol):
    """A board that is ready for all that several boards may do."""

    def deploy(self, model: Model, *, verify: bool) -> Deployed:
        """Put the completion program, which was asked for, and a model on the board.

        Raises:
            ArmloadError: as for ``put_in_place``.
        """


class FleetReach(BoardReach[FleetBoard], Protocol):
    """How boards are reached, for all that several boards may do."""

    def pull(self, board: str, progress: Progress) -> Pulled:
        """Fetch the finished runs on a board."""

    def board(self, name: str, progress: Progress) -> Board:
        """Return a board that can be connected to as long as boards are reached.

        Raises:
            UsageError: there is none, or it is a group.
        """


@contextmanager
def boards_reached(
    scheduler: str, boards: Sequence[str], progress: Progress
) -> Iterator[FleetReach]:
    """Return how boards are reached: over connections from here, or through gateways.

    Args:
        scheduler: the address of the gateways' scheduler; empty for connections from here.
    """
    if not scheduler:
        yield Direct()
        return
    # What only gateways need would slow down the start of every other command.
    from armload.fleet.gateways import gateways_of
    from armload.fleet.remote_boards import ThroughGateways

    with gateways_of(scheduler, boards, progress) as gateways:
        yield ThroughGateways(gateways, progress)


class ConnectedFleetBoard(ConnectedTuningBoard):
    """A board that this machine is connected to."""

    def deploy(self, model: Model, *, verify: bool) -> Deployed:
        return put_in_place(self.where, model, self._progress, verify=verify)


class Direct(ConnectedBoards[ConnectedFleetBoard]):
    """Over connections from this machine."""

    def __init__(self) -> None:
        super().__init__(ConnectedFleetBoard)

    def pull(self, board: str, progress: Progress) -> Pulled:
        return pull_from(load_board(board), progress)

    def board(self, name: str, _progress: Progress) -> Board:
        return load_board(name)
