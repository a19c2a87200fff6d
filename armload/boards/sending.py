"""A local file to a board, in chunks that pass through Python: works wherever ``write`` does."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from armload.core.files import CHUNK_BYTES

TELL_EVERY_S = 0.2


def reporting_chunks(path: Path, offset_bytes: int, sent: Callable[[int], None]) -> Iterator[bytes]:
    """Yield a file's chunks from an offset on, telling ``sent`` how far they were taken."""
    with path.open("rb") as file:
        position = file.seek(offset_bytes)
        sent(position)
        reported_at = time.monotonic()
        while chunk := file.read(CHUNK_BYTES):
            yield chunk
            position += len(chunk)
            if time.monotonic() - reported_at >= TELL_EVERY_S:
                sent(position)
                reported_at = time.monotonic()
    sent(position)
