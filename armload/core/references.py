"""Folders of results, which a person names by the beginning or the end of an id."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from armload.core.errors import UsageError


def fitting(folders: Sequence[Path], reference: str) -> Path | None:
    """Return the folder whose name begins or ends so; none if there is none.

    Args:
        folders: the oldest first.

    Raises:
        UsageError: several do.
    """
    found = [
        folder
        for folder in folders
        if folder.name.startswith(reference) or folder.name.endswith(reference)
    ]
    if len(found) > 1:
        raise UsageError(
            f"{reference!r} is ambiguous: {found[-1].name} or {found[-2].name}.",
            "Give more of the id.",
        )
    return found[0] if found else None


def fitting_or_refused(folders: Sequence[Path], reference: str, *, kind: str) -> Path:
    """Return the folder whose name begins or ends so.

    Args:
        folders: the oldest first; at least one.
        kind: what they hold, such as ``load``.

    Raises:
        UsageError: none does, or several do.
    """
    found = fitting(folders, reference)
    if found is None:
        raise UsageError(f"There is no {kind} {reference!r}.", f"The latest is {folders[-1].name}.")
    return found
