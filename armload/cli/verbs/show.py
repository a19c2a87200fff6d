"""``show``: runs that lie on the laptop."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from invoke.context import Context
from invoke.tasks import task

from armload.cli.verb import Verb

if TYPE_CHECKING:
    from armload.bench.run import Run

_RUN = "a run's id or the end of it, its folder, latest, latest:TEXT, or BOARD:MODEL"
_SHOWN = 20


@task(
    klass=Verb,
    help={
        "run": f"{_RUN}; left out: a list",
        "last": "how many runs the list shows; 0: all",
        "json": "print one JSON document; of the list, the ids of all runs",
    },
)
def show(c: Context, run: str = "", last: str = str(_SHOWN), json: bool = False) -> None:
    """Show a run's figures, or the list of runs.

    Example: armload show --run latest
    """
    del c
    import json as json_format

    from armload.bench import store
    from armload.cli import terminal
    from armload.report.table import list_table, run_table

    if run:
        found = store.load(store.find(run))
        if json:
            terminal.show_json(found.model_dump_json(indent=1))
        else:
            terminal.show(run_table(found))
        return
    count = _count(last)
    folders = store.run_folders()
    if json:
        terminal.show_json(json_format.dumps([folder.name for folder in folders]))
    elif folders:
        shown = folders[-count:]  # 0 is all of them
        terminal.show(list_table(list(_readable(shown))))
        if len(shown) < len(folders):
            older = len(folders) - len(shown)
            terminal.progress().say(f"{older} older: armload show --last {len(folders)}")
    else:
        terminal.progress().say("There are no runs here yet: armload demo, or armload bench.")


def _count(text: str) -> int:
    from armload.core.errors import UsageError

    if not text.isascii() or not text.isdigit():
        raise UsageError(f"--last {text!a}: this is no number of runs.", "Say --last 50, or 0.")
    return int(text)


def _readable(folders: list[Path]) -> Iterator[Run]:
    from armload.bench import store
    from armload.cli import terminal
    from armload.core.errors import ArmloadError

    for folder in folders:
        try:
            yield store.load(folder)
        except ArmloadError as error:
            terminal.progress().say(f"left out: {error}")
