"""The prompts whose logits are computed."""

from __future__ import annotations

from pathlib import Path

from armload.core.errors import DataError, UsageError
from armload.core.files import require_file, unreadable


def read_prompts(path: Path, limit: int | None = None) -> tuple[str, ...]:
    """Read a file with a prompt on each line; empty lines count for nothing.

    Args:
        limit: take the first so many only.

    Raises:
        UsageError: there is no such file, or no prompt in it.
        DataError: it is not UTF-8 text.
        DiskError: it cannot be read.
    """
    require_file(path, "file of prompts", "Give a text file with a prompt on each line.")
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: this is not UTF-8 text.", "Save it as UTF-8.") from error
    except OSError as error:
        raise unreadable(path, error) from error
    prompts = tuple(line for line in lines if line.strip())[:limit]
    if not prompts:
        raise UsageError(f"{path} holds no prompts.", "Write a prompt on each line.")
    return prompts
