"""The answers to a list of items, from one run of the scorer or from several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from armload.core.errors import DataError
from armload.core.files import write_whole
from armload.core.progress import Progress
from armload.core.values import ValueList, as_json
from armload.engines.answers import Answer, read_answers
from armload.engines.scorer import ANSWERS

EARLIER = "earlier-runs.json"
"""In a run's folder: the ids of the runs that answered what it was not asked any more."""


@dataclass(frozen=True, kw_only=True)
class Answered:
    """What is answered so far.

    Attributes:
        folders: of the runs that it takes, the latest first.
        answers: by the ids of the items; the latest of each.
    """

    folders: tuple[Path, ...]
    answers: Mapping[str, Answer]


def gathered(folders: Sequence[Path], progress: Progress) -> Answered:
    """Return what runs have answered.

    Args:
        folders: of runs that were asked the same items, or some of them; the latest first.
    """
    taken, answers = [], dict[str, Answer]()
    for folder in folders:
        try:
            found = _by_id(folder)
        except DataError as error:
            progress.say(f"skipped: {error.message}")
            continue
        if found.keys() - answers.keys():
            taken.append(folder)
            answers = found | answers
    return Answered(folders=tuple(taken), answers=answers)


def note_earlier(found: Answered) -> Path:
    """Note in the folder of the latest run which others it continues; return the folder."""
    latest, *others = found.folders
    if others:
        names = ValueList[str](tuple(folder.name for folder in others))
        write_whole(latest / EARLIER, as_json(names).encode())
    return latest


def folders_of(folder: Path) -> tuple[Path, ...]:
    """Return a run's folder and those of the runs that it continues, the latest first.

    Raises:
        DataError: the list of them was changed.
    """
    path = folder / EARLIER
    if not path.is_file():
        return (folder,)
    try:
        names = ValueList[str].model_validate_json(path.read_bytes()).root
    except ValidationError as error:
        raise DataError(
            f"{path}: not a list of runs.", "The file was changed. Compute again with --new."
        ) from error
    return (folder, *(folder.parent / name for name in names))


def answers_in(folder: Path) -> dict[str, Answer]:
    """Return the answers of a run, and of those that it continues, by their ids.

    Raises:
        DataError: a file was changed.
    """
    answers: dict[str, Answer] = {}
    for each in folders_of(folder):
        answers = _by_id(each) | answers
    return answers


def _by_id(folder: Path) -> dict[str, Answer]:
    return {each.id: each for each in read_answers(folder / ANSWERS)}
