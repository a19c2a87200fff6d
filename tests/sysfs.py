"""A kernel's files as a plain folder, to be seen in place of /sys or /proc."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def write_tree(root: Path, files: Mapping[str, object]) -> Path:
    """Write each file's content, with the newline that the kernel ends it with; return the root."""
    for name, content in files.items():
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")
    return root


def show(root: Path, name: str, content: object) -> None:
    """Change what a file shows, as the kernel does: at once."""
    (root / name).write_text(f"{content}\n")
