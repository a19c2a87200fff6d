"""Files and folders that a person gives, put on a board under the names that they have."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path, PurePosixPath

from armload.boards.host import Host
from armload.boards.probe import Probe
from armload.core.errors import UsageError
from armload.core.progress import Progress
from armload.core.values import Value, format_bytes
from armload.deploy.deployment import helper_on_board
from armload.deploy.item import Item, Stored, parse_stored, stored_script
from armload.deploy.layout import Layout
from armload.deploy.patience import patiently
from armload.deploy.space import ask_space
from armload.deploy.transfer import deliver
from armload.models.checksum import cached_sha256

_ASKED_AT_ONCE = 100


class Part(Value):
    """One file of a thing.

    Attributes:
        name: with the thing's own name before it: ``qwen/config.json``.
        local: on the laptop.
        sha256, size_bytes: of its content.
        executable: whether it may be run.
    """

    name: PurePosixPath
    local: Path
    sha256: str
    size_bytes: int
    executable: bool


class Thing(Value):
    """A file, or a folder with all that is in it; empty folders are left out.

    Attributes:
        name: its last name.
        local: its whole path on the laptop, as it was given.
        sha256: of the file; of a folder, over its files' names, checksums and rights.
        parts: its files.
    """

    name: str
    local: Path
    sha256: str
    parts: tuple[Part, ...]

    @property
    def size_bytes(self) -> int:
        """Of all its files."""
        return sum(part.size_bytes for part in self.parts)

    @property
    def is_program(self) -> bool:
        """Whether it is one file that may be run."""
        return (
            len(self.parts) == 1 and self.parts[0].local == self.local and self.parts[0].executable
        )

    def folder(self, layout: Layout) -> PurePosixPath:
        """Return the folder on a board that nothing else lies in."""
        place = layout.program if self.is_program else layout.model
        return place(self.sha256, self.name).parent


def read_thing(path: Path, progress: Progress) -> Thing:
    """Look at a file or folder and compute its checksums.

    Raises:
        UsageError: it is not there, is empty, or has names that no board could take.
        DataError: a file changed while it was read.
    """
    local = Path(os.path.normpath(path.expanduser().absolute()))
    if not local.exists():
        raise UsageError(f"There is no file or folder {path}.", "Name what is to be put there.")
    parts = tuple(
        _part(PurePosixPath(local.name, *file.relative_to(local).parts), file, progress)
        for file in ([local] if local.is_file() else sorted(_files(local)))
    )
    if not parts:
        raise UsageError(f"{path}: there is no file in it.", "Name what is to be put there.")
    sha256 = parts[0].sha256
    if not local.is_file():
        lines = [f"{part.name}\0{part.sha256}\0{part.executable}\n" for part in parts]
        sha256 = hashlib.sha256("".join(lines).encode()).hexdigest()
    return Thing(name=local.name, local=local, sha256=sha256, parts=parts)


def put(
    host: Host, layout: Layout, things: Sequence[Thing], found: Probe, progress: Progress
) -> bool:
    """Put things on a board, each file checked there; say whether something had to be sent.

    Raises:
        BoardError: no space, or a folder that cannot be written.
        ConnectError, TransferError: as for ``push``.
    """
    items = [
        Item(
            local=part.local,
            remote=thing.folder(layout) / part.name,
            sha256=part.sha256,
            executable=part.executable,
        )
        for thing in things
        for part in thing.parts
    ]
    stored: list[Stored] = []
    for first in range(0, len(items), _ASKED_AT_ONCE):
        some = items[first : first + _ASKED_AT_ONCE]
        said = patiently(partial(host.run, stored_script(some))).stdout
        stored += parse_stored(some, said)
    lacking = [pair for pair in zip(items, stored, strict=True) if pair[1].state != "present"]
    if not lacking:
        return False
    patiently(lambda: _need_space(host, layout, things, lacking))
    sums = helper_on_board(host, layout, found, progress)
    sent = False
    for item, state in lacking:
        sent |= deliver(host, item, state, progress, helper=sums)
    return sent


def _need_space(
    host: Host, layout: Layout, things: Sequence[Thing], lacking: Sequence[tuple[Item, Stored]]
) -> None:
    folders = dict.fromkeys(item.remote.parent for item, _ in lacking)
    space = ask_space(host, [*(thing.folder(layout) for thing in things), *folders])
    wanted = sum(
        max(item.size_bytes - state.part_bytes, 0)
        for item, state in lacking
        if state.state != "unchecked"
    )
    names = " and ".join(f"{each.name} ({format_bytes(each.size_bytes)})" for each in things)
    space.need(host, names, layout.workdir, wanted)


def _files(folder: Path) -> Iterator[Path]:
    seen = set()
    for name, folders, files in os.walk(folder, followlinks=True):
        real = os.path.realpath(name)
        if real in seen:  # a link to a folder above
            folders.clear()
            continue
        seen.add(real)
        for file in files:
            path = Path(name, file)
            if path.is_file():
                yield path


def _part(name: PurePosixPath, file: Path, progress: Progress) -> Part:
    try:
        str(name).encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{str(name)!a}: this name is not valid UTF-8.", "Rename it.") from error
    return Part(
        name=name,
        local=file,
        sha256=cached_sha256(file, progress),
        size_bytes=file.stat().st_size,
        executable=os.access(file, os.X_OK),
    )
