"""Pages, charts and documents as lines of text that a person can read and compare."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import Any

_BLOCKS = {
    "p",
    "h1",
    "h2",
    "h3",
    "li",
    "tr",
    "summary",
    "section",
    "figure",
    "footer",
    "pre",
    "div",
}
_CELLS = {"td", "th"}
_UNREAD = {"style", "svg", "title", "script"}
_DIGITS = 9
_WIDTH = 120


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.lines: list[str] = []
        self.charts: dict[str, Any] = {}
        self._line = ""
        self._unread: list[str] = []
        self._is_chart = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        if tag in _UNREAD:
            self._unread.append(tag)
            self._is_chart = known.get("id") == "charts"
        if tag in _BLOCKS:
            self._end_line()
        if tag in {"h1", "h2", "h3"}:
            self._line = f"{'#' * int(tag[1])} "
        if tag == "li":
            self._line = "- "
        if tag == "figure":
            self._line = f"[{known.get('id')}: {known.get('aria-label')}]"
        kind = known.get("class") or known.get("data-state") or known.get("data-outcome")
        if tag in {"p", "tr", "section"} and kind:
            self._line = f"({kind}) "
        if tag == "small":
            self._line += " "
        if tag == "a":
            self._line += f"<{known.get('href')}>"

    def handle_endtag(self, tag: str) -> None:
        if tag in _UNREAD and self._unread:
            self._unread.pop()
            self._is_chart = False
        if tag in _BLOCKS:
            self._end_line()
        if tag in _CELLS:
            self._line = f"{self._line.rstrip()} | "
        if tag == "button":
            self._line += "; "

    def handle_data(self, data: str) -> None:
        if self._is_chart:
            self.charts = json.loads(data)
        if not self._unread:
            self._line += " ".join(data.split("\n")) if data.strip() else " " if data else ""

    def _end_line(self) -> None:
        if self._line.strip(" |"):
            self.lines.append(" ".join(self._line.split()).removesuffix(" |"))
        self._line = ""


def page_text(html: str) -> tuple[str, dict[str, Any]]:
    """Return what stands on a page, a line for each paragraph and row, and its charts."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    reader._end_line()
    return "\n".join(reader.lines) + "\n", reader.charts


def chart_text(charts: dict[str, Any]) -> str:
    """Return charts' specifications, a line for each row of their data."""
    parts = []
    for name, chart in charts.items():
        own = {key: each for key, each in chart.items() if key not in ("$schema", "datasets")}
        lines = [f"# {name}", laid_out(_sorted(rounded(own)))]
        for dataset, rows in sorted(chart.get("datasets", {}).items()):
            lines.append(f"## {dataset}: {len(rows)} rows")
            lines += [json.dumps(rounded(row), sort_keys=True, ensure_ascii=False) for row in rows]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def document_text(text: str) -> str:
    """Return a JSON document with its numbers rounded where machines compute them differently."""
    return laid_out(rounded(json.loads(text))) + "\n"


def laid_out(value: Any, indent: str = "") -> str:
    """Return JSON in which what fits a line is one."""
    line = json.dumps(value, ensure_ascii=False)
    if len(indent) + len(line) <= _WIDTH or not isinstance(value, dict | list) or not value:
        return line
    deeper = f"{indent} "
    if isinstance(value, list):
        parts = [laid_out(each, deeper) for each in value]
    else:
        parts = [f"{json.dumps(key)}: {laid_out(each, deeper)}" for key, each in value.items()]
    begin, end = "[]" if isinstance(value, list) else "{}"
    return f"{begin}\n" + ",\n".join(f"{deeper}{part}" for part in parts) + f"\n{indent}{end}"


def _sorted(value: Any) -> Any:
    return json.loads(json.dumps(value, sort_keys=True))


def rounded(value: Any) -> Any:
    """Return a value whose numbers have as many digits as every machine computes alike."""
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return value
