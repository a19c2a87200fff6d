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
                    file.truncate(file.read().rfind(b"\n") + 1)
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


def whole_lines(content: bytes) -> bytes:
    """Return a file's content up to the end of its last whole line.

    Each line is an object of JSON. Storage that was full, or a program that was killed, leaves the
    beginning of one, and a power cut leaves zeros on some file systems.
    """
    content = content.partition(b"\0")[0]
    return content[: content.rfind(b"}\n") + 2] if b"}\n" in content else b""


def is_whole(line: bytes) -> bool:
    """Say whether a line was written to its end; beginnings stay where there was space again."""
    return line.endswith(b"}")


def any_cut(content: bytes) -> bool:
    """Say whether a file holds the beginning of a line without its end."""
    return not all(is_whole(line) for line in content.removesuffix(b"\n").split(b"\n") if line)


def _lines(values: Sequence[BaseModel]) -> bytes:
    return "".join(f"{each.model_dump_json()}\n" for each in values).encode()
