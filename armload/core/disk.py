"""A disk of this machine that is full or refuses to be written: one kind of error in every verb."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from armload.core.errors import DiskError

CACHE_REMEDY = "Make room, or set ARMLOAD_CACHE to another folder, then run the same command again."

_REFUSALS = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES}


def is_refusal(error: OSError) -> bool:
    """Say whether the operating system could not, or would not, write."""
    return error.errno in _REFUSALS


@contextmanager
def written_in(folder: Path, remedy: str = CACHE_REMEDY) -> Iterator[None]:
    """Turn a full or unwritable disk into an error that says what to do.

    Args:
        folder: named where the operating system names no file.
        remedy: what to do now.

    Raises:
        DiskError: the operating system refused to write.
    """
    try:
        yield
    except OSError as error:
        if not is_refusal(error):
            raise
        where = error.filename or folder
        raise DiskError(
            f"{where} on this machine cannot be written: {error.strerror}.", remedy
        ) from error
