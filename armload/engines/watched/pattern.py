"""Lines of a program's output, described by a text with places in braces.

A pattern is no regular expression: it is matched from left to right and never tried again, so that
a line takes a time that grows with its length alone, whatever a file says.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

LONGEST_LINE_BYTES = 4096
"""Of a longer line, only the beginning is looked at."""

_MOST_LINES_FOUND = 100_000
_ESCAPE = rb"\x1b(?:\[[0-?]{0,32}[ -/]{0,8}[@-~]|\][^\x07\x1b]{0,256}(?:\x07|\x1b\\)|[@-Z\\^_])"
_ESCAPES = re.compile(_ESCAPE)
_PART = re.compile(rb"(?P<escape>%s)|(?P<space>[ \t\v\f]+)|[^\x1b \t\v\f]+|\x1b" % _ESCAPE)
_BLANKS = re.compile(rb"[\r\n]*+")
_PLACE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")

# Possessive, and never begun within a number: nothing is tried twice.
_NUMBER = (
    rb" ?(?<![\d.])(?P<%s>-?(?:\d++(?:\.\d++)?+(?:[eE][-+]?\d{1,3})?+|inf|nan))(?![A-Za-z]*+\d)"
)
_UNITS = rb"(?:h|ms|m|s|us|\xc2\xb5s|\xce\xbcs|ns)"
_DURATION = rb" ?(?<![\d.])(?P<%%s>(?:\d++(?:\.\d++)?+%s){1,4}+)" % _UNITS
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(h|ms|m|s|us|µs|μs|ns)")

TIMES_S = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "min": 60.0}
SIZES_BYTES = {"B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9} | {
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
}
DURATION = "duration"
"""The unit of a time that carries its units itself, as Go and Abseil write it: ``1m2.5s``."""

ANY, NUMBER, TEXT = "any", "number", "text"
"""Places that are no figure: anything, a number, and the model's text up to the line's end."""


@dataclass(frozen=True, kw_only=True)
class PrintedFigure:
    """A number that a program printed.

    Attributes:
        name: as the pattern calls it.
        unit: as the pattern gives it; empty where the figure has only one.
        value: in that unit; in seconds for a duration.
    """

    name: str
    unit: str
    value: float


@dataclass(frozen=True, kw_only=True)
class PatternMatch:
    """Where an output matches a pattern.

    Attributes:
        line: where its (first) line begins, in bytes.
        begin, end: of what was matched, without what the pattern leaves open at both ends.
        next: where the line after it begins.
        text: where the model's text begins; -1 without one.
        figures: by name.
    """

    line: int
    begin: int
    end: int
    next: int
    text: int = -1
    figures: Mapping[str, PrintedFigure] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class _Line:
    """One line: parts that follow one another, with anything between two of them."""

    parts: tuple[re.Pattern[bytes], ...]
    places: tuple[tuple[str, str], ...]
    opens_with_any: bool
    ends_with_any: bool
    has_text: bool
    spaces_text: bool
    needle: bytes


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """One line, or several that follow one another; blank ones between them do not count.

    Attributes:
        places: names and units of the figures.
    """

    lines: tuple[_Line, ...]

    @property
    def places(self) -> tuple[tuple[str, str], ...]:
        return tuple(place for line in self.lines for place in line.places)

    @property
    def has_text(self) -> bool:
        """Whether it ends with the model's text."""
        return self.lines[-1].has_text


@lru_cache(maxsize=1024)
def compiled(text: str) -> Pattern:
    """Read a pattern.

    ``{name}`` and ``{name:unit}`` are figures, ``{number}`` is a number that is not kept, ``{any}``
    is anything, and ``{text}`` the model's text to the end of the line. ``{{`` and ``}}`` are
    braces. Any white space stands for any other; beside a place there may be none. A line may go on
    after its pattern.

    Raises:
        ValueError: it is none, and why.
    """
    lines = tuple(_line(line) for line in text.splitlines() if line.strip())
    if not lines:
        raise ValueError("a pattern needs a line")
    if any(line.has_text for line in lines[:-1]):
        raise ValueError("{text} ends a pattern, so it belongs in the last line")
    pattern = Pattern(lines=lines)
    names = [name for name, _ in pattern.places]
    if len(names) > len(set(names)):
        raise ValueError(f"{text!r} names a figure twice")
    return pattern


def find(pattern: Pattern, output: bytes) -> Iterator[PatternMatch]:
    """Yield where an output matches, in order; at most 100,000 lines are looked at."""
    needle = pattern.lines[0].needle
    position = 0
    for _ in range(_MOST_LINES_FOUND):
        hit = output.find(needle, position)
        if hit < 0:
            return
        begin = _line_begin(output, hit)
        if begin is None:
            position = hit + len(needle)
            continue
        found = match_at(pattern, output, begin)
        if found:
            yield found
        position = found.next if found else _line_end(output, hit) + 1


def match_at(pattern: Pattern, output: bytes, begin: int) -> PatternMatch | None:
    """Return what matches in the line that begins there; none where it does not match."""
    first = found = _match(pattern.lines[0], output, begin)
    for line in pattern.lines[1:]:
        if first is None or found is None:
            return None
        found = _match(line, output, _after_blanks(output, found.next))
        if found is not None:
            figures = {**first.figures, **found.figures}
            first = found = replace(found, line=begin, begin=first.begin, figures=figures)
    return found


def readable(output: bytes, most_bytes: int) -> str:
    """Return the beginning of an output for people: its first line that is not blank."""
    for raw in re.split(rb"[\r\n]", output[: 4 * LONGEST_LINE_BYTES]):
        if line := _plain(raw[:LONGEST_LINE_BYTES]):
            return line[:most_bytes].decode("utf-8", "replace")
    return ""


def _line(text: str) -> _Line:
    line = text.strip()
    parts, words = [b""], [""]
    places: list[tuple[str, str]] = []
    ends_with_any = has_text = after_place = False
    end = 0
    for match in _PLACE.finditer(line):
        parts[-1] += _literal(line[end : match.start()], after_place=after_place)
        words[-1] += line[end : match.start()]
        end = match.end()
        if match[0] in ("{{", "}}"):
            parts[-1] += re.escape(match[0][:1].encode())
            words[-1] += match[0][:1]
            after_place = False
            continue
        if match[1] is None:
            raise ValueError(f"a brace has no partner; write {match[0] * 2} for the character")
        name, unit = _name_and_unit(match[1])
        words.append("")
        after_place = True
        parts[-1] = parts[-1].removesuffix(b" ?").removesuffix(b" ")
        if name in (ANY, TEXT):
            ends_with_any, has_text = name == ANY and end == len(line), name == TEXT
            if has_text and end < len(line):
                raise ValueError("{text} goes to the end of the line, so nothing may follow it")
            parts.append(b"")
            continue
        kind = _DURATION if unit == DURATION else _NUMBER
        parts[-1] += (
            (kind % name.encode()) if name != NUMBER else (kind % b"").replace(b"?P<>", b"?:")
        )
        places += [(name, unit)] if name != NUMBER else []
    parts[-1] += _literal(line[end:], after_place=after_place)
    words[-1] += line[end:]
    needle = max((word.encode() for each in words for word in each.split()), key=len, default=b"")
    if len(needle) < _SHORTEST_NEEDLE:
        raise ValueError(
            f"{line!r} needs a word of at least {_SHORTEST_NEEDLE} fixed characters, by which its "
            "line is found"
        )
    if len(places) > len(dict(places)):  # which re refuses, too
        raise ValueError(f"{line!r} names a figure twice")
    return _Line(
        parts=tuple(re.compile(part) for part in parts if part),
        places=tuple(places),
        opens_with_any=not parts[0],
        ends_with_any=ends_with_any,
        has_text=has_text,
        spaces_text=line.endswith(" {text}"),
        needle=needle,
    )


_SHORTEST_NEEDLE = 3


def _name_and_unit(place: str) -> tuple[str, str]:
    name, colon, unit = place.partition(":")
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,39}", name) or (colon and not unit):
        raise ValueError(
            f"{{{place}}}: write {{name}} or {{name:unit}}, with small letters, digits and _"
        )
    if colon and name in (ANY, NUMBER, TEXT) and unit != DURATION:
        raise ValueError(f"{{{place}}}: {name} has no unit")
    return name, unit


def _literal(text: str, *, after_place: bool) -> bytes:
    escaped = re.sub(rb"(?:\\?[ \t])+", b" ", re.escape(text.encode()))
    # How many spaces stand beside a number depends on its digits.
    return b" ?" + escaped[1:] if after_place and escaped.startswith(b" ") else escaped


def _line_begin(output: bytes, position: int) -> int | None:
    """Return where a line begins; none where that is further away than is looked at."""
    least = max(0, position - LONGEST_LINE_BYTES)
    last = max(output.rfind(mark, least, position) for mark in (b"\n", b"\r"))
    if last < 0:
        return 0 if least == 0 else None
    return last + 1


def _line_end(output: bytes, position: int) -> int:
    stop = min(position + LONGEST_LINE_BYTES, len(output))
    ends = (output.find(mark, position, stop) for mark in (b"\n", b"\r"))
    return min((each for each in ends if each >= 0), default=stop)


def _after_blanks(output: bytes, position: int) -> int:
    blanks = _BLANKS.match(output, position)
    return blanks.end() if blanks else position


def _match(line: _Line, output: bytes, begin: int) -> PatternMatch | None:
    end = _line_end(output, begin)
    raw = output[begin : min(end, begin + LONGEST_LINE_BYTES)]
    text = _plain(raw)
    position, first, values = 0, None, dict[str, bytes]()
    for number, part in enumerate(line.parts):
        is_free = number > 0 or line.opens_with_any
        match = part.search(text, position) if is_free else part.match(text, position)
        if match is None:
            return None
        first = match.start() if first is None else first
        position = match.end()
        values |= match.groupdict()
    places = _places(raw)
    after = begin + places[position]
    return PatternMatch(
        line=begin,
        begin=begin + places[first or 0],
        end=end if line.ends_with_any else after,
        next=end + 1,
        # A token may begin with a space of its own, behind the one of the pattern.
        text=after + output.startswith(b" ", after) * line.spaces_text if line.has_text else -1,
        figures={
            name: PrintedFigure(name=name, unit=unit, value=_value(values[name], unit))
            for name, unit in line.places
        },
    )


def _plain(line: bytes) -> bytes:
    """Return a line without colours and with single spaces."""
    return b" ".join(_ESCAPES.sub(b"", line).split())


def _places(line: bytes) -> list[int]:
    """Return where each byte of the plain line stands in the line itself, and its end."""
    places, last, is_space = list[int](), 0, True
    for part in _PART.finditer(line):
        if part["escape"] is not None:
            continue
        if part["space"] is None:
            places.extend(range(*part.span()))
            last = part.end()
        elif not is_space:
            places.append(part.start())
        is_space = part["space"] is not None
    return [*places, last]


def _value(text: bytes, unit: str) -> float:
    if unit == DURATION:
        parts = _DURATION_PART.findall(text.decode("utf-8"))
        scale = TIMES_S | {"h": 3600.0, "m": 60.0, "µs": 1e-6, "μs": 1e-6}
        number = sum(float(number) * scale[each] for number, each in parts)
    else:
        number = float(text)
    return number if math.isfinite(number) else math.nan
