"""A task's questions, from its data."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path, PurePath

from armload.core.errors import DataError, UsageError
from armload.core.files import require_file
from armload.core.pictures import read_picture
from armload.core.progress import Progress, Silent
from armload.engines.plan import MOST_IMAGES
from armload.evaluation.data_files import DataRow, read_rows
from armload.evaluation.question import LETTERS, Question, QuestionImage
from armload.evaluation.task import Task, filled
from armload.models import hub
from armload.models.hub_reference import PREFIX

WORD_PROBLEMS = "generated:word-problems"
"""Data that are generated: the word problems of which training sees none."""

_GENERATED = 1000
_GENERATED_SEED = 1


def load_questions(
    task: Task, data: str = "", limit: int | None = None, progress: Progress | None = None
) -> tuple[Question, ...]:
    """Read the questions of a task.

    Args:
        data: a file or ``hf:ORG/REPO/FILE``; empty takes the task's own.
        limit: take the first so many only.
        progress: of a download.
    """
    chosen = data or task.data
    if not chosen:
        source = f" Get it from: {task.data_source}" if task.data_source else ""
        raise UsageError(
            f"Task {task.name} comes without data.",
            f"Give its data file with --data FILE.{source}",
        )
    folder: Path | None = None
    if chosen == WORD_PROBLEMS:
        rows = _generated(limit or _GENERATED)
    else:
        if chosen.startswith(PREFIX):
            file = hub.fetch_data(chosen, (progress or Silent()))
        else:
            path = Path(chosen).expanduser()
            require_file(
                path, "data file", "Give a file of questions or hf:ORG/REPO/FILE with --data."
            )
            file = path
        rows = read_rows(file, task.format)
        folder = file.parent
    questions = tuple(
        _question(task, number, row, folder)
        for number, row in enumerate(islice(rows, limit), start=1)
    )
    if not questions:
        raise DataError(f"{chosen} holds no questions.", "Give another file with --data FILE.")
    return questions


def _generated(count: int) -> Iterator[DataRow]:
    from armload.evaluation.word_problems import problems

    for number, problem in enumerate(problems("test", count, _GENERATED_SEED), start=1):
        values = {"question": problem.question, "answer": str(problem.answer)}
        yield DataRow(where=f"word problem {number}", values=values)


def _question(task: Task, number: int, row: DataRow, folder: Path | None) -> Question:
    fields = {name: _text(task, row, name, field) for name, field in task.fields.items()}
    choices = _choices(task, row)
    expected = filled(task.expected, fields, row.where).strip()
    if choices:
        expected = _letter(expected, len(choices), row.where)
    images = _images(task, number, row, folder) if folder and task.image else ()
    return Question(
        id=str(number), fields=fields, expected=expected, choices=choices, images=tuple(images)
    )


def _images(task: Task, number: int, row: DataRow, folder: Path) -> Iterator[QuestionImage]:
    """Yield a question's images, checked.

    Only files of the data's folder are read: data may come from anybody.
    """
    field = task.image or ""
    value = _value(task, row, field, f"image: {field}")
    names = value if isinstance(value, list) else [value]
    if not 1 <= len(names) <= MOST_IMAGES:
        raise DataError(
            f"{row.where}: question {number} has {len(names)} images; 1 to {MOST_IMAGES} are "
            "possible.",
            f"Correct {field!r} in the data.",
        )
    for name in names:
        path = PurePath(name if isinstance(name, str) else "..")
        if path.is_absolute() or ".." in path.parts:
            raise DataError(
                f"{row.where}: {field!r} of question {number} names no file in the data's folder.",
                f"Put the images into {folder} or below it, and name them relative to it.",
            )
        try:
            picture = read_picture(folder / path)
        except (UsageError, DataError) as error:
            raise DataError(
                f"{row.where}, question {number}: {error.message}", error.remedy
            ) from error
        known = picture.model_dump(include={"sha256", "width", "height", "path"})
        yield QuestionImage(file=str(path), **known)


def _text(task: Task, row: DataRow, name: str, field: str) -> str:
    value = _value(task, row, field, f"fields: {name}: {field}")
    if isinstance(value, str):
        return value
    # Parquet has types that JSON lacks, such as dates.
    return json.dumps(value, ensure_ascii=False, default=str)


def _value(task: Task, row: DataRow, field: str, key: str) -> object:
    if row.values.get(field) is None:
        raise DataError(
            f"{row.where}: there is no field {field!r}, which task {task.name} needs ({key}).",
            f"Available fields: {', '.join(row.values) or 'none'}. Name the right one in the "
            "task's file, or give the data that the task is for.",
        )
    return row.values[field]


def _choices(task: Task, row: DataRow) -> tuple[str, ...]:
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
        f"{where}: the correct answer is {expected!r}, which is not one of the {choices} choices.",
        f"It must be a letter from A to {known[-1]}, or a number from 0 to {choices - 1}; set "
        "'expected' in the task's file.",
    )
