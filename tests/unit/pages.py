"""Reports as HTML, read as a browser does."""

from __future__ import annotations

from html.parser import HTMLParser

HOSTILE = '</script><script>alert(1)</script><img src="http://a/" onerror="alert(2)">{{ 7*7 }}'


class Page(HTMLParser):
    """Collects elements, links, words, code, scripts, and the rows that can be sorted."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.scripts: list[str] = []
        self.words: list[str] = []
        self.rows = 0
        self.code = ""
        self._inside = ""
        self.feed(text)
        self.close()

    @property
    def shown(self) -> str:
        return " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]
        self.rows += tag == "tr" and any(name == "data-state" for name, _ in attrs)
        self._inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "pre":
            self.code += data
        if self._inside == "script":
            self.scripts[-1] += data
        else:
            self.words.append(data)
