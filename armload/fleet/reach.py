"""How boards are reached: over connections from this machine, or through gateways."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from armload.boards.board import load_board
from armload.core.progress import Progress
from armload.models.model import Model
from armload.runs.fetch import Pulled
from armload.runs.fetch import pull as pull_from
from armload.runs.placing import Deployed, put_in_place
from armload.runs.reach import ConnectedBoards
from armload.runs.request import Request
from armload.tuning.reach import ConnectedTuningBoard, TuningReach


class FleetReach(TuningReach, Protocol):
    """How boards are reached, for all that several boards may do."""

    def pull(self, board: str, progress: Progress) -> Pulled:
        """Fetch the finished runs on a board; errors as for ``runs.fetch.pull``."""

    def deploy(
        self, request: Request, model: Model, progress: Progress, *, verify: bool
    ) -> Deployed:
        """Put the engine and a model on a board; errors as for ``put_in_place``."""


@contextmanager
def boards_reached(
    scheduler: str, boards: Sequence[str], progress: Progress
) -> Iterator[FleetReach]:
    """Return how boards are reached: over connections from here, or through gateways.

    Args:
        scheduler: the address of the gateways' scheduler; empty for connections from here.

    Raises:
        ArmloadError: as for ``gateways_of``.
    """
    if not scheduler:
        yield Direct()
        return
    # What only gateways need would slow down the start of every other command.
    from armload.fleet.gateways import gateways_of
    from armload.fleet.remote_boards import ThroughGateways

    with gateways_of(scheduler, boards, progress) as gateways:
        yield ThroughGateways(gateways, progress)


class Direct(ConnectedBoards[ConnectedTuningBoard]):
    """Over connections from this machine."""

    def __init__(self) -> None:
        super().__init__(ConnectedTuningBoard)

    def pull(self, board: str, progress: Progress) -> Pulled:
        return pull_from(load_board(board), progress)

    def deploy(
        self, request: Request, model: Model, progress: Progress, *, verify: bool
    ) -> Deployed:
        return put_in_place(request, model, progress, verify=verify)
