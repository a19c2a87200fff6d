"""How much of an interrupted upload on a board is intact."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from armload.boards.host import Host
from armload.core.files import CHUNK_BYTES
from armload.core.shell import render
from armload.deploy.upload import Upload
from armload.models.checksum import BLOCK_BYTES

NO_TOOL = "none"
"""What a board without any SHA-256 tool answers."""

# Slow eMMC reads and writes some 10 MB/s at its worst; a minute covers the rest.
_WORST_BYTES_PER_S = 5e6
# A board syncs every second or so: what a power cut spoils is mostly within the last of these.
_SPOILT_TAILS_BYTES = (0, 64 << 20, 256 << 20, 1 << 30, 4 << 30)


def patience_s(size_bytes: int) -> float:
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

    Raises:
        ConnectError: the connection dropped.
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
        script = render("prefix.sh.j2", {"length": candidate, "path": upload.part, "helper": ""})
        theirs = host.run(script, timeout_s=patience_s(candidate)).text
        if theirs in {NO_TOOL, _sum(upload.local, candidate)}:
            return candidate
    return 0


def _good_blocks_bytes(
    host: Host, upload: Upload, known_good: int, length: int, helper: PurePosixPath
) -> int:
    good = known_good // BLOCK_BYTES * BLOCK_BYTES
    script = render(
        "blocks.sh.j2",
        {
            "helper": helper,
            "block": BLOCK_BYTES,
            "skip": good,
            "length": length - good,
            "path": upload.part,
        },
    )
    theirs = host.run(script, timeout_s=patience_s(length - good)).text.split()
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
