"""A file to upload to a board, and what of it is there already."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Literal

from armload.boards.host import Host
from armload.core.files import CHUNK_BYTES
from armload.core.shell import call, join
from armload.core.values import Value
from armload.deploy.layout import OWN_FOLDER
from armload.models.model import BLOCK_BYTES


class Upload(Value):
    """A file to upload to a board.

    Attributes:
        local: on this machine.
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
        return self.remote.parent / OWN_FOLDER / f"{self.remote.name}.part"

    @property
    def size_bytes(self) -> int:
        return self.local.stat().st_size


class UploadState(Value):
    """What of an upload lies on a board.

    Attributes:
        state: ``present`` was checked before and has not changed since.
        part_bytes: length of what a former transfer left.
    """

    state: Literal["present", "unchecked", "part", "absent"]
    part_bytes: int = 0


def stored_script(uploads: Sequence[Upload]) -> str:
    """Return the script whose output ``parse_stored`` reads."""
    return call("tell_stored", *(upload.remote for upload in uploads))


def parse_stored(uploads: Sequence[Upload], output: bytes) -> tuple[UploadState, ...]:
    """Read what the script said of these uploads; malformed lines count as absent."""
    lines = iter(output.decode("utf-8", "replace").splitlines())
    for line in lines:
        if line == "#armload files":
            break
    return tuple(_stored(upload, lines) for upload in uploads)


def _stored(upload: Upload, lines: Iterator[str]) -> UploadState:
    word = next(lines, "")
    if word == "present":
        record, mark = next(lines, ""), next(lines, "")
        as_recorded = record == f"{upload.sha256} {mark}"
        return UploadState(state="present" if as_recorded else "unchecked")
    if word == "part":
        length = next(lines, "").strip()
        digits = re.fullmatch(r"[0-9]{1,18}", length)
        return UploadState(state="part", part_bytes=int(length) if digits else 0)
    return UploadState(state="absent")


def what_is_stored(host: Host, upload: Upload) -> UploadState:
    (stored,) = parse_stored([upload], host.run(stored_script([upload])).stdout)
    return stored


NO_TOOL = "none"
"""What a board without any SHA-256 tool answers."""

# Slow eMMC reads and writes some 10 MB/s at its worst; a minute covers the rest.
_WORST_BYTES_PER_S = 5e6
# A board syncs every second or so: what a power cut spoils is mostly within the last of these.
_SPOILT_TAILS_BYTES = (0, 64 << 20, 256 << 20, 1 << 30, 4 << 30)


def transfer_timeout_s(size_bytes: int) -> float:
    """Return how long a board may take to read or write so much."""
    return 60 + size_bytes / _WORST_BYTES_PER_S


def good_prefix_bytes(
    host: Host,
    upload: Upload,
    part_bytes: int,
    *,
    known_good_bytes: int,
    helper: PurePosixPath | None,
) -> int:
    """Return how many of the first bytes of an upload's part are as in the local file.

    With the helper it is the longest good run of whole blocks, found in one reading. With a
    board's own tools, which sum whole files only, a few lengths are tried. Where there is no
    tool, all is taken for good: the check of the whole file decides.

    Args:
        part_bytes: length of the part; a file of that length lies there.
        known_good_bytes: so many were found good since the first connection.
        helper: our program on the board that sums blocks; none where it cannot run.
    """
    length = min(part_bytes, upload.size_bytes)
    if length == 0:
        return 0
    if helper is not None:
        return _good_blocks_bytes(host, upload, min(known_good_bytes, length), length, helper)
    for tail in _SPOILT_TAILS_BYTES:
        candidate = length - tail
        if candidate <= 0:
            break
        script = call("sum_of_first", candidate, upload.part)
        theirs = host.run(script, timeout_s=transfer_timeout_s(candidate)).text
        if theirs in {NO_TOOL, _sum(upload.local, candidate)}:
            return candidate
    return 0


def _good_blocks_bytes(
    host: Host, upload: Upload, known_good: int, length: int, helper: PurePosixPath
) -> int:
    good = known_good // BLOCK_BYTES * BLOCK_BYTES
    which = ["-b", BLOCK_BYTES, "-s", good, "-n", length - good]
    script = join([helper, *map(str, which), upload.part])
    theirs = host.run(script, timeout_s=transfer_timeout_s(length - good)).text.split()
    for their_sum, our_sum in zip(theirs, _block_sums(upload.local, good, length), strict=False):
        if their_sum != our_sum:
            break
        good = min(good + BLOCK_BYTES, length)
    return good


def _block_sums(path: Path, begin: int, end: int) -> Iterator[str]:
    with path.open("rb") as file:
        file.seek(begin)
        while begin < end and (block := file.read(min(BLOCK_BYTES, end - begin))):
            yield hashlib.sha256(block).hexdigest()
            begin += len(block)


def _sum(path: Path, length: int) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while length > 0 and (chunk := file.read(min(CHUNK_BYTES, length))):
            digest.update(chunk)
            length -= len(chunk)
    return digest.hexdigest()
