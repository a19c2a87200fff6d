"""Files that tests take from a folder beside the checkout, and how many tests lack them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "shared" / "data"
STORIES = FOLDER / "stories260K.gguf"
STORY = FOLDER / "stories260K.expected.txt"
GSM8K = FOLDER / "gsm8k_test.jsonl"

_LACKING = f"not in {FOLDER}: "


def needs(file: Path) -> pytest.MarkDecorator:
    """Return the mark of a test that is skipped without a file of that folder."""
    return pytest.mark.skipif(not file.is_file(), reason=_LACKING + file.name)


needs_stories = needs(STORIES)


def shared(name: str) -> Path:
    """Return a file of that folder; without it, skip the test."""
    if not (FOLDER / name).is_file():
        pytest.skip(_LACKING + name)
    return FOLDER / name


def told(reasons: Iterable[str]) -> str:
    """Say how many tests were skipped for want of which files; nothing where none was.

    Args:
        reasons: of all skipped tests.
    """
    files = [reason.rpartition(_LACKING)[2] for reason in reasons if _LACKING in reason]
    if not files:
        return ""
    names = ", ".join(sorted(set(files)))
    tests = "1 test was" if len(files) == 1 else f"{len(files)} tests were"
    return f"{tests} skipped, because {FOLDER} has no {names}."
