"""Where results go: what ``--output`` names, and a standard output that tells its name."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

STANDARD_OUTPUT = "standard output"
"""The file name of an error that comes from writing there."""


def output_file(text: str) -> Path:
    """Return the file that a person named; it is not there yet.

    Raises:
        UsageError: it is, or it is a folder, or the folder that it would lie in is missing.
    """
    from armload.core.errors import UsageError

    path = Path(text).expanduser()
    if path.is_dir():
        raise UsageError(f"{path} is a folder.", "Give --output the name of a file to write.")
    if path.exists():
        raise UsageError(f"{path} exists already.", "Delete it, or give another --output.")
    _need_folder(path if text.endswith("/") else path.parent)
    return path


def output_folder(text: str) -> Path:
    """Return the folder that a person named; it alone is made when it is not there.

    Raises:
        UsageError: it is a file, or the folder that it would lie in is missing.
    """
    from armload.core.errors import UsageError

    path = Path(text).expanduser()
    if path.exists() and not path.is_dir():
        raise UsageError(f"{path} is no folder.", "Give --output the name of a folder.")
    _need_folder(path.parent)
    return path


def _need_folder(folder: Path) -> None:
    from armload.core.errors import UsageError
    from armload.core.shell import join

    # A name that was mistyped must not become a tree of folders.
    if not folder.is_dir():
        raise UsageError(
            f"There is no folder {folder}.",
            f"Correct --output, or make the folder first: {join(['mkdir', '-p', folder])}",
        )


class _Named(io.FileIO):
    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            error.filename = STANDARD_OUTPUT
            raise


def named_output() -> io.TextIOWrapper:
    """Return a standard output whose errors say which file it is that cannot be written."""
    given = sys.stdout
    return io.TextIOWrapper(
        io.BufferedWriter(_Named(given.fileno(), "w", closefd=False)),
        encoding=given.encoding,
        errors=given.errors,
        line_buffering=given.isatty(),
    )
