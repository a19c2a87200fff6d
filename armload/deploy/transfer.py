"""Files onto a board: verified, resumed, and not sent when they are there."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Literal

from armload.boards.host import Host
from armload.boards.probe import free_bytes
from armload.core.errors import BoardError, ConnectError, TransferError
from armload.core.files import CHUNK_BYTES
from armload.core.progress import Progress, Step
from armload.core.shell import render
from armload.core.values import Value, format_bytes

SPARE_BYTES = 4 << 20
"""Left free on the board, for the run's own files."""

# Slow eMMC reads and writes some 10 MB/s at its worst; a minute covers the rest.
_WORST_BYTES_PER_S = 5e6
_NO_TOOL = "none"


class Item(Value):
    """A file that is to lie on a board.

    Attributes:
        local: on the laptop.
        remote: on the board.
        sha256: of the content, 64 hexadecimal digits.
        executable: whether it is a program.
    """

    local: Path
    remote: PurePosixPath
    sha256: str
    executable: bool

    @property
    def part(self) -> PurePosixPath:
        """Where it grows on the board until it is whole."""
        return self.remote.with_name(f"{self.remote.name}.part")


class Stored(Value):
    """What of an item lies on a board.

    Attributes:
        state: ``present`` was checked before and has not changed since.
        part_bytes: length of what a former transfer left.
    """

    state: Literal["present", "unchecked", "part", "absent"]
    part_bytes: int


def stored_script(items: Sequence[Item]) -> str:
    """Return the script whose output ``parse_stored`` reads."""
    return render("stored.sh.j2", {"files": items})


def parse_stored(items: Sequence[Item], output: bytes) -> tuple[Stored, ...]:
    """Read what the script said of these items; what makes no sense counts as not there."""
    lines = iter(output.decode("utf-8", "replace").splitlines())
    for line in lines:
        if line == "#armload files":
            break
    return tuple(_stored(item, lines) for item in items)


def _stored(item: Item, lines: Iterator[str]) -> Stored:
    word = next(lines, "")
    if word == "present":
        record, mark = next(lines, ""), next(lines, "")
        state: Literal["present", "unchecked"] = (
            "present" if record == f"{item.sha256} {mark}" else "unchecked"
        )
        return Stored(state=state, part_bytes=0)
    if word == "part":
        length = next(lines, "").strip()
        return Stored(
            state="part", part_bytes=int(length) if re.fullmatch(r"[0-9]{1,18}", length) else 0
        )
    return Stored(state="absent", part_bytes=0)


def push(
    host: Host,
    local: Path,
    remote: PurePosixPath,
    *,
    sha256: str,
    executable: bool,
    progress: Progress,
) -> bool:
    """Make ``remote`` hold the content of ``local``; return False when it did already.

    The file grows beside its place, is synced to the board's storage, compared by its
    SHA-256 and then renamed. What a broken transfer left is continued after its content was
    checked. A board without any SHA-256 tool has the file read back instead.

    Raises:
        ConnectError: the line broke, and did again without a byte in between.
        BoardError: no space, or the folder cannot be written.
        TransferError: the content differs after it was sent twice.
    """
    item = Item(local=local, remote=remote, sha256=sha256, executable=executable)
    (stored,) = parse_stored([item], host.run(stored_script([item])).stdout)
    return deliver(host, item, stored, progress)


def deliver(host: Host, item: Item, stored: Stored, progress: Progress) -> bool:
    """Do what ``push`` does from a known state on; errors as there."""
    if stored.state == "present":
        return False
    if stored.state == "unchecked":
        if _accepted(host, item, item.remote, progress):
            return False
        host.run(render("remove.sh.j2", {"paths": [item.remote]}))
        stored = Stored(state="absent", part_bytes=0)
    _need_space(host, item, stored)
    for attempt in range(2):
        _send_all(host, item, 0 if attempt else stored.part_bytes, progress)
        if _accepted(host, item, item.part, progress):
            return True
        progress.say(f"{item.remote.name} differs on {host.name}; sending all of it again.")
    host.run(render("remove.sh.j2", {"paths": [item.part]}))
    raise TransferError(
        f"{host.name}: {item.remote} differs from {item.local} after it was sent twice.",
        "Did the local file change meanwhile? If not, the board's storage or memory is faulty.",
    )


def _send_all(host: Host, item: Item, part_bytes: int, progress: Progress) -> None:
    size = item.local.stat().st_size
    with progress.step(f"Copying {item.remote.name}", total=size, unit="B") as step:
        offset = _good_prefix_bytes(host, item, part_bytes)
        while True:
            reader = _Reader(item.local, offset, step)
            try:
                host.write(item.part, reader, offset_bytes=offset)
            except ConnectError:
                if reader.position <= offset:
                    raise
                step.update(reader.position, note="the line broke; going on")
                offset = _good_prefix_bytes(host, item, _part_bytes(host, item))
            else:
                return


class _Reader:
    """A file's chunks from an offset on, and how far they went."""

    def __init__(self, path: Path, offset: int, step: Step) -> None:
        self._path = path
        self._step = step
        self.position = offset

    def __iter__(self) -> Iterator[bytes]:
        with self._path.open("rb") as file:
            file.seek(self.position)
            self._step.update(self.position)
            while chunk := file.read(CHUNK_BYTES):
                yield chunk
                self.position += len(chunk)
                self._step.update(self.position)


def _part_bytes(host: Host, item: Item) -> int:
    (stored,) = parse_stored([item], host.run(stored_script([item])).stdout)
    return stored.part_bytes


def _good_prefix_bytes(host: Host, item: Item, part_bytes: int) -> int:
    if not 0 < part_bytes <= item.local.stat().st_size:
        return 0
    theirs = host.run(
        render("sum.sh.j2", {"path": item.part}), timeout_s=_patience_s(part_bytes)
    ).text
    return part_bytes if theirs == _prefix_sha256(item.local, part_bytes) else 0


def _prefix_sha256(path: Path, length: int) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while length > 0 and (chunk := file.read(min(CHUNK_BYTES, length))):
            digest.update(chunk)
            length -= len(chunk)
    return digest.hexdigest()


def _accepted(host: Host, item: Item, source: PurePosixPath, progress: Progress) -> bool:
    with progress.step(f"Checking {item.remote.name} on {host.name}") as step:
        said = _accept(host, item, source, verified=False)
        if said == _NO_TOOL:
            step.update(0, note="reading it back")
            digest = hashlib.sha256()
            for chunk in host.read(source):
                digest.update(chunk)
            if digest.hexdigest() == item.sha256:
                said = _accept(host, item, source, verified=True)
        return said == "accepted"


def _accept(host: Host, item: Item, source: PurePosixPath, *, verified: bool) -> str:
    script = render(
        "accept.sh.j2",
        {
            "source": source,
            "remote": item.remote,
            "sha256": item.sha256,
            "executable": item.executable,
            "verified": verified,
        },
    )
    done = host.run(script, timeout_s=_patience_s(item.local.stat().st_size))
    if done.status != 0:
        reason = done.stderr.decode("utf-8", "replace").strip()
        raise BoardError(f"{host.name}: {item.remote} cannot be put into place: {reason}.")
    return done.text


def _patience_s(size_bytes: int) -> float:
    return 60 + size_bytes / _WORST_BYTES_PER_S


def _need_space(host: Host, item: Item, stored: Stored) -> None:
    folder = item.remote.parent
    workdir = folder.parent.parent
    done = host.run(render("space.sh.j2", {"folder": folder, "workdir": workdir}))
    if done.status != 0:
        reason = done.stderr.decode("utf-8", "replace").strip()
        raise BoardError(
            f"{host.name}: {folder} cannot be made: {reason}.",
            f"Choose a folder that can be written as 'workdir' in boards/{host.name}.yaml.",
        )
    df, _, used = done.text.partition("#armload used")
    free = free_bytes(df.splitlines())
    size = item.local.stat().st_size
    missing = size - min(stored.part_bytes, size) + SPARE_BYTES - free
    if missing > 0:
        raise BoardError(
            f"{host.name}: no space for {item.remote.name} ({format_bytes(size)}): "
            f"{format_bytes(free)} free in {workdir}, {format_bytes(missing)} missing.",
            _what_to_free(used, workdir),
        )


def _what_to_free(used: str, workdir: PurePosixPath) -> str:
    sizes = []
    for line in used.strip().splitlines():
        kib, _, name = line.partition("\t")
        if kib.isdigit() and name:
            sizes.append((int(kib) * 1024, workdir / name))
    largest = sorted(sizes, reverse=True)[:3]
    if not largest:
        return "Nothing of armload's lies there; free other space, or choose another 'workdir'."
    named = ", ".join(f"{path} ({format_bytes(size)})" for size, path in largest)
    return f"armload's own largest folders there, if you need them no more: {named}."
