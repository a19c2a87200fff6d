"""Where results go: what ``--output`` names."""

from __future__ import annotations

from pathlib import Path


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
        UsageError: it is a file, or not empty, or the folder that it would lie in is missing.
    """
    from armload.core.errors import UsageError

    path = Path(text).expanduser()
    if path.exists() and not path.is_dir():
        raise UsageError(f"{path} is not a folder.", "Give --output the name of a folder.")
    if path.exists() and any(path.iterdir()):
        raise UsageError(
            f"{path} exists already and is not empty.", "Delete it, or give another --output."
        )
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
