"""The output of a command that is still running, as it comes."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Literal

from armload.boards.host import Piece
from armload.core.errors import ConnectError

PIECE_BYTES = 1 << 18

_Pieces = queue.SimpleQueue[Piece | None]


def pieces(
    stdout: Iterable[bytes],
    stderr: Iterable[bytes],
    patience_s: Callable[[], float],
    complaint: str,
) -> Iterator[Piece]:
    """Read both streams to their ends, side by side.

    Raises:
        ConnectError: nothing came for as long as ``patience_s`` says each time; the complaint.
    """
    found: _Pieces = queue.SimpleQueue()
    streams: tuple[tuple[Literal["stdout", "stderr"], Iterable[bytes]], ...] = (
        ("stdout", stdout),
        ("stderr", stderr),
    )
    for name, blocks in streams:
        threading.Thread(target=_put, args=(name, blocks, found), daemon=True).start()
    open_streams = 2
    while open_streams:
        try:
            piece = found.get(timeout=max(patience_s(), 0.001))
        except queue.Empty as error:
            raise ConnectError(complaint) from error
        if piece is None:
            open_streams -= 1
        else:
            yield piece


def _put(name: Literal["stdout", "stderr"], blocks: Iterable[bytes], found: _Pieces) -> None:
    with contextlib.suppress(OSError, EOFError, ValueError):
        for data in blocks:
            if data:
                found.put((name, data))
    found.put(None)
