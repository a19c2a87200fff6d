"""Fetching all finished runs of a board that are not on this machine yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from armload.analysis.run import Run
from armload.boards.board import Board
from armload.boards.connect import connect, is_blank
from armload.core.errors import ArmloadError, ConnectError
from armload.core.progress import Progress
from armload.deploy.owner import workstation_id
from armload.deploy.run_owner import RunOwner
from armload.deploy.stored import list_runs
from armload.runs.fetch import fetch, tell_it_is_fetched
from armload.runs.store import is_here


@dataclass(frozen=True, kw_only=True)
class Pulled:
    """The result of fetching runs.

    Attributes:
        runs: that are here now.
        lost: why others are not, by their names.
    """

    runs: tuple[Run, ...]
    lost: Mapping[str, ArmloadError]


def pull(board: Board, progress: Progress) -> Pulled:
    """Fetch every run on a board that has ended and is not here yet, or not readable.

    A run that is still running, and one that cannot be read or stored, is named and left alone.

    Raises:
        ConnectError: the board does not answer any more.
    """
    if is_blank(board, progress):
        return Pulled(runs=(), lost={})
    host = connect(board, progress)
    try:
        runs: list[Run] = []
        lost: dict[str, ArmloadError] = {}
        for stored in list_runs(host, board.workdir):
            if is_here(stored.id):
                continue
            if stored.state == "running":
                progress.say(f"{stored.id} is still running on {board.name}.")
                continue
            try:
                run, _ = fetch(host, board, stored.folder, progress, cut=stored.cut)
            except ConnectError:
                raise
            except ArmloadError as error:
                named = "" if stored.id in error.message else f"{stored.id}: "
                progress.say(f"Cannot fetch: {named}{error.message}")
                lost[stored.id] = error
                continue
            runs.append(run)
            mark = RunOwner.read(stored.mark)
            if (
                mark is None or mark.workstation == workstation_id()
            ):  # another's is still to be fetched by it
                tell_it_is_fetched(host, stored.folder)
        return Pulled(runs=tuple(runs), lost=lost)
    finally:
        host.close()
