"""What a person means by the words that name runs."""

from __future__ import annotations

from pathlib import Path

from armload.bench import store
from armload.core.errors import UsageError


def single_words(words: str) -> list[str]:
    """Take apart what stands with commas between; a path that holds a comma is one word.

    Raises:
        UsageError: there is nothing beside a comma.
    """
    references = [words] if _exists(words) else words.split(",")
    if not all(reference.strip() for reference in references):
        raise UsageError(
            f"{words!r}: a run's name is missing beside a comma.",
            "Several runs are written A1,A2,A3.",
        )
    return [reference.strip() for reference in references]


def folders_of(words: str) -> list[Path]:
    """Return the folders of the runs that are meant, in the order in which they are named.

    Args:
        words: a run, as ``store.find`` takes it, or its ``run.json``; or several of them with
            commas between.

    Raises:
        UsageError: there is no such run.
    """
    return [folder for reference in single_words(words) for folder in _folders_of(reference)]


def _exists(words: str) -> bool:
    try:
        return Path(words).exists()
    except OSError:  # many names in a row are longer than a file's name may be
        return False


def _folders_of(reference: str) -> list[Path]:
    path = Path(reference)
    if path.name == store.RUN_FILE and path.is_file():
        return [path.parent]
    return [store.find(reference)]
