"""What is wrong with the syntax of a YAML file, in words that need no knowledge of its parser."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from armload.core.errors import DataError

_QUOTE = "Quote text that contains special characters."
_SHOWN_BEFORE, _SHOWN_COLUMNS = 60, 100
_INDENT = " " * 4
_KNOWN = (
    (r"found character '\\t'", "a tab cannot indent a line", "Indent with spaces."),
    (
        r"found character (?P<it>.+) that cannot start any token",
        "a value cannot begin with {it} unless it is quoted",
        _QUOTE,
    ),
    (
        r"could not find expected ':'",
        "there is no colon after the key",
        "Put a colon and a space after the key on that line.",
    ),
    (
        r"quoted scalar.*found unexpected (end of stream|document separator)",
        "this quote is never closed",
        "Close it, or quote text that contains a quote with the other kind.",
    ),
    (
        r"found unknown escape character '(?P<it>.+)'",
        r"\{it} has no meaning within double quotes",
        r"Use single quotes, or write \\ for a backslash.",
    ),
    (
        r"undefined alias|expected alphabetic or numeric character",
        "text that begins with * or & must be quoted",
        _QUOTE,
    ),
    (
        r"constructor for the tag (?P<it>.+)",
        "the tag {it} has no meaning here",
        "Delete the tag, or quote text that begins with '!'.",
    ),
    (r"unhashable key", "a key cannot be a list or a mapping", _QUOTE),
    (
        r"expected <block end>, but found '-'|sequence entries are not allowed",
        "a list entry ('- …') is not allowed here",
        "Give all entries the same indentation, on lines of their own.",
    ),
    (
        r"expected <block end>, but found '(<scalar>|[]},])'",
        "there is text after the end of the value",
        "Delete it, or quote the whole value.",
    ),
    (
        r"block collection.*expected <block end>",
        "a key cannot appear between list entries",
        "Indent the entries below a key of their own.",
    ),
    (
        r"expected <block end>",
        "the indentation of this line matches no line above",
        "Give keys that belong together the same indentation.",
    ),
    (r"expected a single document", "the file holds several documents", "Delete the line '---'."),
)


def syntax_error(path: Path, text: str, error: yaml.MarkedYAMLError) -> DataError:
    """Return what to tell a person about text that is no YAML.

    Args:
        text: the whole of the file.
        error: of the parser.
    """
    begin, end = error.context_mark, error.problem_mark
    complaint = " ".join(filter(None, (error.context, error.problem)))
    what, remedy, mark = _meaning(complaint, text, begin, end)
    line, column = (mark.line, mark.column) if mark else (0, 0)
    lines = text.splitlines()
    shown = f"\n{_pointed_at(lines[line], column)}" if line < len(lines) else ""
    return DataError(f"{path}, line {line + 1}, column {column + 1}: {what}.{shown}", remedy)


def _meaning(
    complaint: str, text: str, begin: yaml.Mark | None, end: yaml.Mark | None
) -> tuple[str, str, yaml.Mark | None]:
    """Return what is wrong, what to do, and where it is."""
    bracket = re.search(r"expected ',' or '([]}])'", complaint)
    if bracket and begin and end:
        if end.line > begin.line:
            opening = "[" if bracket[1] == "]" else "{"
            return f"{opening!r} is never closed", f"Add the missing {bracket[1]!r}.", begin
        return f"a comma or {bracket[1]!r} is missing", "Separate entries with commas.", end
    if "mapping values are not allowed" in complaint and end:
        before = text.splitlines()[end.line][: end.column]
        if ": " in before:
            return "a value cannot contain ': ' unless it is quoted", "Quote the value.", end
        return (
            "this key is indented more than the line above allows",
            "Give keys that belong together the same indentation.",
            end,
        )
    for pattern, what, remedy in _KNOWN:
        if found := re.search(pattern, complaint):
            is_at_begin = "never closed" in what or "no colon" in what
            return what.format(**found.groupdict()), remedy, (begin if is_at_begin else end) or end
    return (
        "this is not valid YAML",
        "Check the indentation, quotes and brackets there.",
        end or begin,
    )


def _pointed_at(line: str, column: int) -> str:
    """Show a line, or what lies around a column of a long one, and a mark beneath the column."""
    start = max(0, column - _SHOWN_BEFORE)
    before = line[start:column].expandtabs(4)
    shown = before + line[column : start + _SHOWN_COLUMNS].expandtabs(4)
    return f"{_INDENT}{shown}\n{_INDENT}{'':{len(before)}}^"
