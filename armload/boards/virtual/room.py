"""Want of room on the laptop, where virtual boards and what they are made of lie."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from armload.core.errors import BoardError
from armload.core.workspace import cache_folder

REMEDY = "Make room, or set ARMLOAD_CACHE to another folder, then run the same command again."

_UNUSABLE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES}
_SAID = re.compile(r"No space left on device|enough free space|Disk quota exceeded")


def in_english() -> dict[str, str]:
    """Return the environment in which a program's words are the ones that are looked for."""
    return {**os.environ, "LC_ALL": "C.UTF-8", "LANGUAGE": ""}


def tells_no_room(output: str) -> bool:
    """Say whether a program complains, in English, that the disk is full."""
    return _SAID.search(output) is not None


@contextmanager
def usable_cache() -> Iterator[None]:
    """Turn a full or unwritable disk into an error that says what to do.

    Raises:
        BoardError: the operating system refused to write.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _UNUSABLE:
            raise
        where = Path(error.filename) if error.filename else cache_folder()
        raise BoardError(
            f"{where} on this laptop cannot be written: {error.strerror}.", REMEDY
        ) from error
