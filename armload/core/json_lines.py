"""Files with a JSON document on each line, which outlive an interruption and a power failure."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel

from armload.core.files import sync_folder, write_whole


def append_lines(path: Path, values: Sequence[BaseModel], *, is_synced: bool = True) -> None:
    """Append a JSON document for each value; a last line that was cut off is removed first.

    Args:
        is_synced: they survive a power failure right afterwards; if not, the end of this program.
    """
    is_new = not path.exists()
    try:
        with path.open("ab+") as file:
            if file.tell():
                file.seek(-1, os.SEEK_END)
                if file.read() != b"\n":
                    file.seek(0)
                    file.truncate(len(_whole_lines(file.read())))
            file.write(_lines(values))
            file.flush()
            if is_synced:
                os.fsync(file.fileno())
    except OSError as error:
        error.filename = error.filename or str(path)
        raise
    if is_new and is_synced:
        sync_folder(path.parent)


def write_lines(path: Path, values: Sequence[BaseModel]) -> None:
    """Write a JSON document for each value, and nothing else, durably."""
    write_whole(path, _lines(values))


def _lines(values: Sequence[BaseModel]) -> bytes:
    return "".join(f"{each.model_dump_json()}\n" for each in values).encode()


def _whole_lines(content: bytes) -> bytes:
    return content[: content.rfind(b"\n") + 1]
