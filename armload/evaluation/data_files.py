"""Rows of a file of data: JSON lines, CSV or Parquet."""

from __future__ import annotations

import csv
import importlib.util
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Literal

from armload.core.errors import DataError, MissingToolError
from armload.core.files import unreadable
from armload.core.shell import pip_install
from armload.core.values import Value, load_json

Format = Literal["jsonl", "csv", "parquet"]

_BY_ENDING: Mapping[str, Format] = {".jsonl": "jsonl", ".csv": "csv", ".parquet": "parquet"}
_ROWS_AT_A_TIME = 256


class DataRow(Value):
    """A question as the data have it, and where."""

    where: str
    values: Mapping[str, object]


def read_rows(path: Path, otherwise: Format) -> Iterator[DataRow]:
    """Read a file row by row; no more of it is read than is asked for.

    Args:
        otherwise: the format of a file whose name does not say it.
    """
    form = _BY_ENDING.get(path.suffix.lower(), otherwise)
    try:
        if form == "parquet":
            yield from _parquet_rows(path)
            return
        # A byte order mark, as spreadsheets write it, is not part of the first field's name.
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield from _csv_rows(path, file) if form == "csv" else _json_rows(path, file)
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: this is not UTF-8 text.", "Save it as UTF-8.") from error
    except OSError as error:
        raise unreadable(path, error) from error


def _parquet_rows(path: Path) -> Iterator[DataRow]:
    if importlib.util.find_spec("pyarrow") is None:
        raise MissingToolError(
            f"{path} is a Parquet file, which needs the package pyarrow.",
            f"Install it: {pip_install('pyarrow>=17')}. Or save the data as JSON lines.",
        )
    from pyarrow.lib import ArrowException
    from pyarrow.parquet import ParquetFile

    try:
        with ParquetFile(path) as file:
            batches = (batch.to_pylist() for batch in file.iter_batches(_ROWS_AT_A_TIME))
            for number, values in enumerate(chain.from_iterable(batches), start=1):
                yield DataRow(where=f"{path}, row {number}", values=values)
    except ArrowException as error:
        said = str(error).splitlines()[0]
        raise DataError(
            f"{path}: not a whole Parquet file: {said}",
            "Download it again, or give another file with --data FILE.",
        ) from error


def _json_rows(path: Path, lines: Iterator[str]) -> Iterator[DataRow]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            values = load_json(line)
        except ValueError as error:
            raise DataError(
                f"{where}: invalid JSON: {error}.", "Each line must be one JSON object."
            ) from error
        if not isinstance(values, dict):
            raise DataError(f"{where}: not a JSON object.", 'Write {"field": "value", …} per line.')
        yield DataRow(where=where, values=values)


def _csv_rows(path: Path, lines: Iterator[str]) -> Iterator[DataRow]:
    reader = csv.DictReader(lines, strict=True)
    while True:
        try:
            values = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise DataError(
                f"{path}, line {reader.line_num}: invalid CSV: {error}.",
                "Quote values that contain commas, quotes or line breaks.",
            ) from error
        if None in values or None in values.values():
            raise DataError(
                f"{path}, line {reader.line_num}: more or fewer values than the header has.",
                "Quote values that contain commas.",
            )
        yield DataRow(where=f"{path}, line {reader.line_num}", values=values)
