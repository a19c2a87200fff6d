"""Too little disk space on this machine, as the tools that make virtual boards report it."""

from __future__ import annotations

import os
import re

_FULL = re.compile(r"No space left on device|enough free space|Disk quota exceeded")


def in_english() -> dict[str, str]:
    """Return the environment in which a program's words are the ones that are looked for."""
    return {**os.environ, "LC_ALL": "C.UTF-8", "LANGUAGE": ""}


def reports_full_disk(output: str) -> bool:
    """Say whether a program complains, in English, that the disk is full."""
    return _FULL.search(output) is not None
