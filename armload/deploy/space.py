"""Room on a board's storage, asked for before anything is sent there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from armload.boards.conditions import free_bytes
from armload.boards.host import Host
from armload.core.errors import BoardError
from armload.core.shell import render
from armload.core.values import Value, format_bytes
from armload.deploy.item import Item, Stored

SPARE_BYTES = 4 << 20
"""Left free on the board, for the run's own files."""


_WORTH_NAMING_BYTES = 1 << 20


class Space(Value):
    """What a board says of its storage.

    Attributes:
        free_bytes: none when it has no tool that says it.
        advice: what to do when that is too little.
    """

    free_bytes: int | None
    advice: str

    def need(self, host: Host, names: str, workdir: PurePosixPath, wanted_bytes: int) -> None:
        """Make sure that so much fits, beside what a run itself writes.

        Raises:
            BoardError: it does not; the figures that it gives add up.
        """
        if self.free_bytes is None or wanted_bytes + SPARE_BYTES <= self.free_bytes:
            return
        missing = wanted_bytes + SPARE_BYTES - self.free_bytes
        raise BoardError(
            f"{host.name}: no space for {names}: {format_bytes(self.free_bytes)} free in "
            f"{workdir}; {format_bytes(wanted_bytes)} to send and {format_bytes(SPARE_BYTES)} kept "
            f"free for the run's own files make {format_bytes(missing)} missing.",
            self.advice,
        )


def need_space(host: Host, items: Sequence[Item], stored: Sequence[Stored]) -> None:
    """Make the items' folders, and make sure that what is missing of all of them fits.

    Raises:
        BoardError: it does not, or a folder cannot be made or written.
        ConnectError: the line broke.
    """
    lacking = {
        item: item.size_bytes - min(state.part_bytes, item.size_bytes)
        for item, state in zip(items, stored, strict=True)
        if state.state in {"part", "absent"}
    }
    if not lacking:
        return
    space = ask_space(host, [item.remote.parent for item in lacking])
    named = " and ".join(
        f"{item.remote.name} ({format_bytes(item.size_bytes)})" for item in lacking
    )
    space.need(host, named, _workdir(items[0]), sum(lacking.values()))


def ask_space(host: Host, folders: Sequence[PurePosixPath]) -> Space:
    """Make folders below one work folder, and say how much room is left there.

    Raises:
        BoardError: a folder cannot be made or written.
        ConnectError: the line broke.
    """
    workdir = folders[0].parent.parent
    done = host.run(render("space.sh.j2", {"folders": folders, "workdir": workdir}))
    if done.status != 0:
        reason = done.stderr.decode("utf-8", "replace").strip()
        raise BoardError(
            f"{host.name}: {folders[0]} cannot be made: {reason}.",
            f"Choose a folder that can be written as 'workdir' in boards/{host.name}.yaml.",
        )
    df, _, used = done.text.partition("#armload used")
    lines = df.splitlines()
    return Space(
        free_bytes=free_bytes(lines) if len(lines) > 1 else None,
        advice=_what_to_free(used, workdir),
    )


def _workdir(item: Item) -> PurePosixPath:
    return item.remote.parent.parent.parent


def _what_to_free(used: str, workdir: PurePosixPath) -> str:
    sizes = []
    for line in used.strip().splitlines():
        kib, _, name = line.partition("\t")
        if kib.isdigit() and name and int(kib) * 1024 >= _WORTH_NAMING_BYTES:
            sizes.append((int(kib) * 1024, workdir / name))
    largest = sorted(sizes, reverse=True)[:3]
    if not largest:
        return (
            "Nothing large of armload's lies there; free other space, or choose another 'workdir'."
        )
    named = ", ".join(f"{path} ({format_bytes(size)})" for size, path in largest)
    return f"armload's own largest folders there, if you need them no more: {named}."
