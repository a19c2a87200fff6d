"""A task's questions, from its data."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

from armload.core.disk import require_file, unreadable
from armload.core.errors import DataError, UsageError
from armload.core.progress import Progress, Silent
from armload.core.values import Value
from armload.evaluation.question import LETTERS, Question
from armload.evaluation.task import Task
from armload.evaluation.templates import filled
from armload.models import hub

WORD_PROBLEMS = "generated:word-problems"
"""Data that are generated: the word problems of which training sees none."""

_GENERATED = 1000
_GENERATED_SEED = 1


class _Row(Value):
    """A question as the data have it, and where."""

    where: str
    values: Mapping[str, object]


def load_questions(
    task: Task, data: str = "", limit: int | None = None, progress: Progress | None = None
) -> tuple[Question, ...]:
    """Read the questions of a task.

    Args:
        data: a file or ``hf:ORG/REPO/FILE``; empty takes the task's own.
        limit: take the first so many only.
        progress: of a download.

    Raises:
        UsageError: there are no data, or no such file.
        DataError: a file is malformed, or lacks a field; says file and line.
        MissingToolError, ConnectError, DiskError: as for ``hub.fetch_data``.
    """
    chosen = data or task.data
    if not chosen:
        source = f" Get it from: {task.data_source}" if task.data_source else ""
        raise UsageError(
            f"Task {task.name} comes without data.",
            f"Give its data file with --data FILE.{source}",
        )
    if chosen == WORD_PROBLEMS:
        rows = _generated(limit or _GENERATED)
    else:
        rows = _rows(task, _file(chosen, progress or Silent()))
    questions = tuple(
        _question(task, number, row) for number, row in enumerate(islice(rows, limit), start=1)
    )
    if not questions:
        raise DataError(f"{chosen} holds no questions.", "Give another file with --data FILE.")
    return questions


def _file(data: str, progress: Progress) -> Path:
    if data.startswith(hub.PREFIX):
        return hub.fetch_data(data, progress)
    path = Path(data).expanduser()
    require_file(path, "data file", "Give a file of questions or hf:ORG/REPO/FILE with --data.")
    return path


def _generated(count: int) -> Iterator[_Row]:
    from armload.evaluation.word_problems import problems

    for number, problem in enumerate(problems("test", count, _GENERATED_SEED), start=1):
        values = {"question": problem.question, "answer": str(problem.answer)}
        yield _Row(where=f"word problem {number}", values=values)


def _rows(task: Task, path: Path) -> Iterator[_Row]:
    kind = {".jsonl": "jsonl", ".csv": "csv"}.get(path.suffix.lower(), task.format)
    try:
        # A byte order mark, as spreadsheets write it, is not part of the first field's name.
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield from _csv_rows(path, file) if kind == "csv" else _json_rows(path, file)
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: this is not UTF-8 text.", "Save it as UTF-8.") from error
    except OSError as error:
        raise unreadable(path, error) from error


def _json_rows(path: Path, lines: Iterator[str]) -> Iterator[_Row]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            values = json.loads(line)
        except ValueError as error:
            raise DataError(
                f"{where}: invalid JSON: {error}.", "Each line must be one JSON object."
            ) from error
        if not isinstance(values, dict):
            raise DataError(f"{where}: not a JSON object.", 'Write {"field": "value", …} per line.')
        yield _Row(where=where, values=values)


def _csv_rows(path: Path, lines: Iterator[str]) -> Iterator[_Row]:
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
        yield _Row(where=f"{path}, line {reader.line_num}", values=values)


def _question(task: Task, number: int, row: _Row) -> Question:
    fields = {name: _text(task, row, name, field) for name, field in task.fields.items()}
    choices = _choices(task, row)
    expected = filled(task.expected, fields, row.where).strip()
    if choices:
        expected = _letter(expected, len(choices), row.where)
    return Question(id=str(number), fields=fields, expected=expected, choices=choices)


def _text(task: Task, row: _Row, name: str, field: str) -> str:
    value = _value(task, row, field, f"fields: {name}: {field}")
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _value(task: Task, row: _Row, field: str, key: str) -> object:
    if row.values.get(field) is None:
        raise DataError(
            f"{row.where}: there is no field {field!r}, which task {task.name} needs ({key}).",
            f"Fields there: {', '.join(row.values) or 'none'}. Name the right one in the task's "
            "file, or give the data that the task is for.",
        )
    return row.values[field]


def _choices(task: Task, row: _Row) -> tuple[str, ...]:
    if task.choices is None:
        return ()
    if isinstance(task.choices, tuple):
        found = [_value(task, row, field, f"choices: {field}") for field in task.choices]
    else:
        listed = _value(task, row, task.choices, f"choices: {task.choices}")
        found = listed if isinstance(listed, list) else []
    choices = tuple(choice for choice in found if isinstance(choice, str) and choice)
    if len(choices) != len(found) or not 2 <= len(choices) <= len(LETTERS):
        raise DataError(
            f"{row.where}: the choices must be 2 to {len(LETTERS)} texts, none of them empty.",
            "Correct the data, or 'choices' in the task's file: a field that holds a list, or a "
            "list of fields.",
        )
    return choices


def _letter(expected: str, choices: int, where: str) -> str:
    known = LETTERS[:choices]
    if expected.isdecimal() and int(expected) < choices:
        return known[int(expected)]
    if len(expected) == 1 and expected.upper() in known:
        return expected.upper()
    raise DataError(
        f"{where}: the right answer is {expected!r}, which is none of {choices} choices.",
        f"It must be a letter from A to {known[-1]}, or a number from 0 to {choices - 1}; set "
        "'expected' in the task's file.",
    )
