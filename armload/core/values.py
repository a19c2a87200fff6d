"""The base of every value that is read from, or written to, YAML and JSON."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, RootModel
from pydantic_core import PydanticSerializationError

Item = TypeVar("Item")


class Value(BaseModel):
    """A frozen value; an unknown key is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


@dataclass(frozen=True)
class Leaves:
    """Marks a field that may leave this machine in an export; every other one stays.

    Attributes:
        form: that a text must have; ``numbers``: of the records in it, numbers and fixed words.
    """

    form: str = ""


LEAVES = Leaves()


class ValueList(RootModel[tuple[Item, ...]], Generic[Item]):
    """A frozen list of values, as a JSON document of its own."""

    model_config = ConfigDict(frozen=True)


def as_json(value: BaseModel) -> str:
    """Write a value as every JSON document of armload is written.

    Indented by one space, keys in the order of the fields, characters as they are, and a newline
    at the end.
    """
    try:
        return value.model_dump_json(indent=1) + "\n"
    except PydanticSerializationError:  # a file's name that is no UTF-8 needs JSON's escapes
        text = json.dumps(value.model_dump(mode="json"), indent=1, ensure_ascii=False) + "\n"
        return re.sub(r"[\ud800-\udfff]", lambda match: json.dumps(match[0])[1:-1], text)


def as_csv(columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    """Write a table as every CSV file of armload is written (RFC 4180), with its headings.

    No text in it is taken for a formula by a spreadsheet.
    """
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_no_formula(row.get(column)) for column in columns])
    return text.getvalue()


def _no_formula(entry: object) -> object:
    is_one = isinstance(entry, str) and entry.startswith(("=", "+", "-", "@", "\t", "\r"))
    return f"'{entry}" if is_one else entry


_MOST = (1 << 63) - 1

Count = Annotated[int, Field(ge=0, le=_MOST)]
"""How many, or how many bytes or nanoseconds, as programs on a board count: in 64 bits."""

Finite = Annotated[float, Field(allow_inf_nan=False)]


def whole_number(text: str) -> int | None:
    """Read decimal digits that a board wrote; none where they are no number of 64 bits."""
    return int(text) if re.fullmatch(r"[0-9]{1,18}", text) else None


_MOST_VALUES = 5_000_000
"""Of a document: they take some half a gigabyte of memory, however short each is written."""


def load_json(text: str | bytes) -> Any:
    """Parse a document that a person has supplied.

    Raises:
        ValueError: it is no JSON, is nested too deep, or has too many values.
    """
    return _parsed(text, _MOST_VALUES, json.loads)


def parse_json(text: str | bytes, *, most_values: int = _MOST_VALUES) -> Any:
    """Parse a document that a board, or a program on it, may have written.

    Raises:
        ValueError: it is no JSON, is nested too deep, has too many values, or holds a number of
            more than 64 bits.
    """
    parse = partial(json.loads, parse_int=_whole, parse_float=_finite, parse_constant=_finite)
    return _parsed(text, most_values, parse)


def _parsed(text: str | bytes, most_values: int, parse: Callable[[str | bytes], Any]) -> Any:
    _check_values(text, most_values)
    try:
        return parse(text)
    except json.JSONDecodeError as error:
        raise ValueError(_json_mistake(error)) from error
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def _json_mistake(error: json.JSONDecodeError) -> str:
    if not error.doc.strip():
        return "it is empty"
    ends_there = error.pos >= len(error.doc.rstrip())
    if ends_there or error.msg.startswith("Unterminated string"):
        return f"it breaks off in line {error.doc.rstrip().count(chr(10)) + 1}"
    return f"invalid at line {error.lineno}, column {error.colno}"


def _check_values(text: str | bytes, most: int) -> None:
    if isinstance(text, bytes):
        count = text.count(b",") + text.count(b"[") + text.count(b"{")
    else:
        count = text.count(",") + text.count("[") + text.count("{")
    if count > most:
        raise ValueError(f"it has more than {most:,} values")


def _whole(text: str) -> int:
    if len(text) > len(str(-_MOST)) or abs(value := int(text)) > _MOST:
        raise ValueError(f"{text[:40]} has more than 64 bits")
    return value


def _finite(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(f"{text[:40]} is not a number")
    return value


_UNITS = {
    "": 1,
    "B": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
}


def parse_bytes(text: object) -> object:
    """Turn ``"2 GiB"`` or ``"165 MB"`` into a number of bytes; leave anything else alone.

    Decimal units are powers of 1000 and binary units powers of 1024 (IEC 80000-13).

    Raises:
        ValueError: the text is no number with one of those units.
    """
    if not isinstance(text, str):
        return text
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", text)
    if match is None or match.group(2) not in _UNITS:
        allowed = ", ".join(unit for unit in _UNITS if unit)
        raise ValueError(f"{text!r} is not a size; write a number and a unit ({allowed})")
    count = int(Decimal(match.group(1)) * _UNITS[match.group(2)])
    if count > _MOST:
        raise ValueError(f"this size is too large; {_MOST // 10**18} EB is the limit")
    return count


_Size = Annotated[str, Field(pattern=rf"^\s*[0-9]+(\.[0-9]+)?\s*({'|'.join(_UNITS)})\s*$")]
ByteCount = Annotated[
    int, Field(le=_MOST), BeforeValidator(parse_bytes, json_schema_input_type=int | _Size)
]
"""A number of bytes; YAML may write it as ``2 GiB``."""


def counted(count: int, thing: str) -> str:
    """Write a count with its noun: ``1 token``, ``2 tokens``."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def with_article(noun: str) -> str:
    """Write a noun with its article: ``a load``, ``an evaluation``."""
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


_STEERING = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]"
)
"""Characters that steer a terminal, or turn the direction of the text around them (UAX #9)."""


def visible(text: str) -> str:
    """Return a text of the same length that shows where a character would steer what shows it."""
    return _STEERING.sub("\N{REPLACEMENT CHARACTER}", text)


def format_duration(seconds: float) -> str:
    """Write a time with two figures, or more in front of the point: ``6 s``, ``2.9 min``."""
    for unit, scale in (("h", 3600), ("min", 60)):
        if seconds >= 2 * scale:
            return f"{two_figures(seconds / scale)} {unit}"
    return f"{two_figures(seconds)} s"


def format_seconds(seconds: float) -> str:
    """Write a time with three figures, in ms below one second: ``1.00 s``, ``52.1 ms``."""
    # The unit is chosen after rounding: 0.99996 s is 1.00 s, not 1,000 ms.
    rounded = float(f"{seconds:.2e}")
    return f"{three_figures(seconds)} s" if rounded >= 1 else f"{three_figures(rounded * 1000)} ms"


def three_figures(number: float) -> str:
    """Write a number with three figures, a large one in full: ``0.0123``, ``1.00``, ``2,346``."""
    exponent = int(f"{number:.2e}".partition("e")[2])
    return f"{number:,.{max(0, 2 - exponent)}f}"


def two_figures(number: float) -> str:
    """Write a number with two figures, or more in front of the point: ``2.9``, ``62``."""
    return f"{number:.0f}" if number >= 10 else f"{number:.2g}"


def format_bytes(count: float) -> str:
    """Write a number of bytes in decimal units, as storage makers do: ``1.5 GB``."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(count) >= 0.99995 * size:  # what would be written as 1000.0 of the smaller unit
            return f"{count / size:.1f} {unit}"
    return f"{count:.0f} B"
