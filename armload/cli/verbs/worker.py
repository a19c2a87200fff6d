"""``worker``: a gateway offers its boards to a Dask scheduler."""

from __future__ import annotations

from typing import Annotated

from armload.cli.options import BOARDS
from armload.cli.verb import verb
from armload.core.options import Names, Option, OptionGroup
from armload.core.workspace import runs_folder


class WorkerOptions(OptionGroup):
    """What a gateway offers, and to whom."""

    scheduler: Annotated[
        str, Option("the Dask scheduler's address, such as tls://10.0.0.1:8786", "ADDRESS")
    ]
    boards: Annotated[Names, Option(BOARDS, "BOARD", several="commas")]


@verb(WorkerOptions, results=(runs_folder,), asks=False)
def worker(options: WorkerOptions) -> None:
    """Offer the boards of this machine to the commands that use a Dask scheduler.

    For a group of boards, its members are offered. If it is stopped, runs on the boards continue,
    and are fetched when it is started again. Needs the package distributed; the page fleet.md of
    the documentation describes the set-up.
    Example: armload worker --scheduler tls://10.0.0.1:8786 --boards kitchen,cellar
    """
    from armload.boards.naming import boards_called
    from armload.cli import terminal
    from armload.fleet.offers import names_in
    from armload.fleet.worker import serve_boards

    boards = [name for board in boards_called(options.boards) for name in names_in(board)]
    serve_boards(options.scheduler, tuple(dict.fromkeys(boards)), terminal.progress())
