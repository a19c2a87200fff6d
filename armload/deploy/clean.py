"""Freeing a board of what is needed no more."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import PurePosixPath
from typing import Literal

from armload.boards.board import Board
from armload.boards.connect import connect, is_blank
from armload.boards.host import Host
from armload.core.errors import BoardError, TransferError
from armload.core.progress import Progress
from armload.core.shell import join, render
from armload.core.values import Value
from armload.deploy.board_runs import check_name
from armload.deploy.lease import leased
from armload.deploy.retry import with_retries

DEFAULT_UNUSED_DAYS = 30.0
DAY_S = 86_400

LONGEST_REMOVAL_S = 600.0
_KINDS = {"runs": "run", "bin": "program", "models": "model", "contexts": "context"}


class BoardItem(Value):
    """A folder of armload's on a board.

    Attributes:
        name: relative to the work folder.
        kind: what it holds; a ``context`` is one that ``bench --depth`` has filled.
        state: ``running`` is needed by a program that runs now, ``service`` by an installed
            service, running or not; both stay. An ``unstarted`` run never began, or a power cut
            took it.
        size_bytes: on the storage; none where the board cannot tell.
        used_days: since it was last run, or first looked at; none for runs.
    """

    name: PurePosixPath
    kind: Literal["run", "program", "model", "context"]
    state: Literal["running", "service", "collected", "uncollected", "unstarted", "unused"]
    size_bytes: int | None
    used_days: float | None


class Selection(Value):
    """Which files on a board to remove.

    Attributes:
        uncollected: also runs that have not been fetched.
        unused_days: programs, models and contexts unused for this long.
    """

    uncollected: bool = False
    unused_days: float = DEFAULT_UNUSED_DAYS


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
            *(host, board.workdir, progress),
            wait_s=wait_s,
            beside=lambda: connect(board, progress),
            doing="deleting files",
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


def contents(host: Host, workdir: PurePosixPath) -> tuple[BoardItem, ...]:
    now_s = int(time.time())
    script = render("files/contents.sh.j2", {"workdir": workdir, "now_s": now_s})
    lines = host.run(script, timeout_s=LONGEST_REMOVAL_S).text.splitlines()
    return parse_contents(lines, now_s=now_s, board_name=host.name)


def parse_contents(lines: Iterable[str], *, now_s: int, board_name: str) -> tuple[BoardItem, ...]:
    """Read the list that a board gives of its work folder."""
    found: list[BoardItem] = []
    for line in lines:
        try:
            if line.startswith("#entry "):
                found.append(_entry(line.split(" ", 3)[1:], now_s))
            elif found:
                kib = line.split("\t", 1)[0].strip()
                found[-1] = found[-1].model_copy(update={"size_bytes": int(kib) * 1024})
        except ValueError as error:
            raise TransferError(
                f"{board_name}: cannot parse the listing of its work folder: {line[:200]!r}.",
                "Check the work folder on the board, and remove any files that are not armload's.",
            ) from error
    return tuple(found)


def removable(entries: Sequence[BoardItem], selection: Selection) -> list[BoardItem]:
    """Return what may go: never what a program that runs now needs, or an installed service."""
    return [
        entry
        for entry in entries
        if entry.state in {"collected", "unstarted"}
        or (entry.state == "uncollected" and selection.uncollected)
        or (entry.state == "unused" and (entry.used_days or 0) >= selection.unused_days)
    ]


def remove(host: Host, workdir: PurePosixPath, entries: Sequence[BoardItem]) -> None:
    """Remove folders from a board. The caller has its lease, so nothing is being copied there."""
    if not entries:
        return
    names = [entry.name for entry in entries]
    script = render("files/remove.sh.j2", {"workdir": workdir, "names": names})
    done = host.run(script, timeout_s=LONGEST_REMOVAL_S)
    if done.status != 0:
        reason = done.stderr.decode("utf-8", "replace").strip()
        raise BoardError(f"{host.name}: some files could not be removed: {reason}.")


def delete_folders(host: Host, folders: Sequence[PurePosixPath]) -> None:
    """Delete folders of runs that are nobody's: ``pull`` would fetch them."""
    with_retries(lambda: host.run(_removal(folders)))


def _removal(folders: Sequence[PurePosixPath]) -> str:
    return join(["rm", "-rf", "--", *folders])


def _entry(words: Sequence[str], now_s: int) -> BoardItem:
    state, used, name = words
    folder, _, last = name.partition("/")
    check_name(last)
    values = {
        "name": name,
        "kind": _KINDS.get(folder),
        "state": state,
        "size_bytes": None,
        "used_days": None if used == "-" else max(now_s - int(used), 0) / DAY_S,
    }
    return BoardItem.model_validate(values)
