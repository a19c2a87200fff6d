"""Makes pages of this repository pages of the site: see ``hooks`` in mkdocs.yml.

The README is the site's first page. Links to files that are no pages, such as sources, become text.
"""

from __future__ import annotations

import logging
import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
DOCS = "docs"
HOME = {"index.md": "README.md"}

_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z]+:)([^)#\s]+)(#[^)\s]*)?\)")
_log = logging.getLogger("mkdocs.hooks")  # warnings of this logger fail a strict build


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the README, which lies outside the folder of the pages."""
    for name, source in HOME.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Point links at the site's pages."""
    return _LINK.sub(lambda link: _on_site(link, page.file.src_uri), markdown)


def _on_site(link: re.Match[str], page: str) -> str:
    mark, words, target, anchor = link.groups()
    here = HOME.get(page, posixpath.join(DOCS, page))
    path = posixpath.normpath(posixpath.join(posixpath.dirname(here), target))
    of_page = {source: name for name, source in HOME.items()}
    if path in of_page or path.startswith(f"{DOCS}/"):
        name = of_page.get(path) or path.removeprefix(f"{DOCS}/")
        to = posixpath.relpath(name, posixpath.dirname(page) or ".")
        return f"{mark}[{words}]({to}{anchor or ''})"
    if not (ROOT / path).exists():
        _log.warning("%s links to %s, which does not exist.", here, path)
    return words
