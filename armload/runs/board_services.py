"""Services that a command meets on a board: those beside a run, and those that have ended."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

from armload.boards.board import Board
from armload.boards.host import Host
from armload.core.progress import Progress
from armload.core.shell import render
from armload.deploy.board_runs import list_runs
from armload.deploy.layout import Layout
from armload.deploy.retry import with_retries
from armload.runs.api_keys import forget_key, kept_keys


def mention_services(host: Host, layout: Layout, progress: Progress) -> None:
    """Say which installed services of a board run; once per board and command."""
    if host.name in _mentioned:
        return
    _mentioned.add(host.name)
    script = render("service/tell.sh.j2", {"services": layout.services})
    lines = with_retries(lambda: host.run(script)).text.splitlines()
    for line, after in pairwise(lines):
        if after != "#alive":
            continue
        name = line.removeprefix("#service ")
        progress.say(
            f"{host.name}: the installed service {name} is running; it uses memory, and the CPU "
            f"while it answers. To stop it before the next run: armload service.stop {host.named} "
            f"--name {name}"
        )


_mentioned: set[str] = set()


def report_ended_services(host: Host, board: Board, progress: Progress) -> None:
    """Say which services of this machine a board no longer runs, and delete their keys here.

    The board is asked only while there are keys.
    """
    if not (keys := kept_keys()):
        return
    for run in with_retries(partial(list_runs, host, board.workdir)):
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
