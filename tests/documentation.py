"""What the pages and the README show."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parents[1]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
TUTORIALS = ROOT / "docs" / "tutorials"

_COMMAND = re.compile(r"(?:\$ )?(?:\S+=\S* )*(?:.+ && )?(?:\S+/)?((?:invoke|armload) [^|<>]+)")


def blocks(page: Path) -> Iterator[tuple[str, str]]:
    """Yield the language and the text of each block of code; indented blocks have none."""
    for token in MarkdownIt("commonmark").parse(page.read_text(encoding="utf-8")):
        if token.type in {"code_block", "fence"}:
            yield token.info, token.content.replace("\\\n", "")


def commands(page: Path) -> Iterator[str]:
    """Yield the commands of armload's that a page shows."""
    for _, text in blocks(page):
        for line in text.splitlines():
            if found := _COMMAND.match(line):
                yield found[1].partition(" # ")[0].strip()
