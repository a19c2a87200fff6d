"""Services that ended while no command of this machine looked: they are reported once."""

from __future__ import annotations

from functools import partial

from armload.boards.board import Board
from armload.boards.host import Host
from armload.core.progress import Progress
from armload.deploy.board_runs import list_runs
from armload.deploy.retry import Retry, with_retries
from armload.runs.api_keys import forget_key, kept_keys


def report_ended_services(
    host: Host, board: Board, progress: Progress, retry: Retry | None = None
) -> None:
    """Say which services of this machine a board no longer runs, and delete their keys here.

    The board is asked only while there are keys.

    Args:
        retry: with its first answer; none where it has answered before.
    """
    if not (keys := kept_keys()):
        return
    for run in with_retries(partial(list_runs, host, board.workdir), retry):
        # A command that is there reports the end of its service itself.
        was_left = run.mark is not None and run.mark.was_left_here()
        if run.id in keys and run.state != "running" and was_left:
            if not (run.stopped or run.collected):
                if run.cut == "restart":
                    why = "the board restarted"
                else:
                    why = "it was killed" if run.cut == "lost" else "it ended by itself"
                progress.say(
                    f"{board.name}: the service {run.id} is no longer running: {why}. "
                    f"To see its last messages: armload pull --board {board.name}, then armload "
                    f"show {run.id}"
                )
            forget_key(run.id)
