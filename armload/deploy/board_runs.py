"""The runs that lie on a board."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Literal

from armload.boards.host import Host
from armload.core.errors import TransferError
from armload.core.shell import call, render
from armload.core.values import Count, Value
from armload.deploy.exit_record import Cut
from armload.deploy.holder import RunMark
from armload.deploy.layout import Layout


class StoredRun(Value):
    """A run that lies on a board.

    Attributes:
        id: its name.
        folder: where it lies.
        state: ``interrupted`` when it neither ended nor is running, as after a restart.
        stopped: it ended because that was asked for.
        status: exit status of an ended one.
        cut: what interrupted an interrupted one.
        collected: whoever started it has it.
        mark: who started it, and what for; none where that is not known.
    """

    id: str
    folder: PurePosixPath
    state: Literal["ended", "running", "interrupted"]
    status: Count | None = None
    stopped: bool = False
    cut: Cut | None = None
    collected: bool = False
    mark: RunMark | None = None


def list_runs(host: Host, workdir: PurePosixPath) -> tuple[StoredRun, ...]:
    runs = Layout(workdir=workdir).runs
    lines = host.run(render("run/list.sh.j2", {"runs": runs})).text.splitlines()
    return parse_runs(lines, runs, host.name)


def parse_runs(lines: Iterable[str], runs: PurePosixPath, board_name: str) -> tuple[StoredRun, ...]:
    """Read the list that a board gives of the runs in its folder ``runs``."""
    found = []
    for line in lines:
        try:
            state, how, here, mark, name = line.split(" ", 4)
            check_name(name)
            values = {
                "id": name,
                "folder": runs / name,
                "state": "ended" if state == "stopped" else state,
                "stopped": state == "stopped",
                "status": int(how) if state in ("ended", "stopped") and how != "-" else None,
                "cut": how if state == "interrupted" else None,
                "collected": here == "collected",
                "mark": RunMark.read(mark),
            }
            found.append(StoredRun.model_validate(values))
        except ValueError as error:
            raise TransferError(
                f"{board_name}: cannot parse the list of runs in {runs}: {line[:200]!r}.",
                "Check that folder on the board, and remove anything that is not a run of "
                "armload's.",
            ) from error
    return tuple(found)


def mark_collected(host: Host, run_folder: PurePosixPath) -> None:
    """Note on the board that whoever started a run has it."""
    host.run(call("note_collected", run_folder))


def check_name(name: str) -> None:
    """Refuse a name that a board could use to write elsewhere.

    Raises:
        ValueError: it is not a file name.
    """
    if name != PurePosixPath(name).name or name in ("", ".", "..") or "\0" in name:
        raise ValueError(f"{name[:200]!r} is not a file name")
