"""How fast a board's storage is read, measured on the board."""

from __future__ import annotations

from pathlib import PurePosixPath

from armload.boards.host import Host
from armload.core.shell import render

_MIB = 1 << 20
_READ_MIB = 128
# The clock that a shell can read counts hundredths of a second.
_SHORTEST_CENTISECONDS = 10


def storage_read_rate(host: Host, path: PurePosixPath, *, size_bytes: int) -> float | None:
    """Return the sequential read rate of the storage under a file, in bytes per second.

    Reads up to 128 MiB of the file past the page cache (``O_DIRECT``), once in a boot; a later
    call answers from a record in the file's folder. None when it cannot be told: the board's
    ``dd`` has no direct reads, the file system refuses them, or the file is too short.

    Args:
        host: the board.
        path: a file of some size there, such as a model.
        size_bytes: its length.

    Raises:
        ConnectError: the line broke.
    """
    mebibytes = min(_READ_MIB, size_bytes // _MIB)
    if mebibytes == 0:
        return None
    script = render(
        "read-rate.sh.j2",
        {
            "path": path,
            "record": path.parent / ".read-rate",
            "mebibytes": mebibytes,
            "bytes": mebibytes * _MIB,
        },
    )
    done = host.run(script, timeout_s=300.0)
    words = done.text.split()
    if done.status != 0 or len(words) != 2:
        return None
    read_bytes, centiseconds = int(words[0]), int(words[1])
    if centiseconds < _SHORTEST_CENTISECONDS:
        return None
    return read_bytes * 100 / centiseconds
