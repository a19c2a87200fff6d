"""The files of a folder whose keys decide what runs, and a person's agreement to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from pydantic import BaseModel

from armload.bench.options import Options
from armload.boards.board import Board
from armload.boards.group import Group
from armload.cli import terminal
from armload.cli.configuration import deciding_defaults
from armload.core.errors import ArmloadError
from armload.core.progress import Progress
from armload.core.trust import DEFAULTS_FILE, TrustedFile, trusted_files
from armload.core.values import visible
from armload.core.workspace import owner_of
from armload.core.yamlfile import file_alone, own_file, read_content
from armload.evaluation.task import Task
from armload.report.input_schema import SCHEMAS


def deciding_files(place: Path, progress: Progress) -> Iterator[TrustedFile]:
    """Yield the files of a workspace, or the one file, that decide what runs.

    Args:
        place: a path without links.
        progress: is told which files of a workspace cannot be read.

    Raises:
        ArmloadError: the one file cannot be read.
    """
    for read in _readers(place):
        try:
            found = read()
        except ArmloadError as error:
            if not place.is_dir():
                raise
            progress.say(f"skipped: {error}")
        else:
            if found.keys:
                yield found
    if place.is_dir() and (owner := owner_of(place)):
        yield TrustedFile(folder=place, path=place, keys={"owner": owner})


def _readers(place: Path) -> Iterator[Callable[[], TrustedFile]]:
    if place.is_dir():
        yield partial(deciding_defaults, place / DEFAULTS_FILE)
        for schema in SCHEMAS:
            for path in sorted((place / schema.kind).glob("*.yaml")):
                yield partial(_of_kind, schema.kind, place, path, schema.value)
        for path in sorted(place.glob("*.yaml")):
            if _is_plan(path):
                yield partial(_alone, path)
        return
    for schema in SCHEMAS:
        folder = place.parents[len(Path(schema.kind).parts)]
        if place.parent == folder / schema.kind:
            yield partial(_of_kind, schema.kind, folder, place, schema.value)
            return
    if place.name == DEFAULTS_FILE:
        yield partial(deciding_defaults, place)
    else:
        yield partial(_alone, place)


def _of_kind(kind: str, folder: Path, path: Path, model: type[BaseModel]) -> TrustedFile:
    content = read_content(path, model)
    if model is Board and "members" in content:
        model = Group
    return own_file(kind, folder, path, model, content)


def _alone(path: Path) -> TrustedFile:
    content = read_content(path, Options)
    model = Options if content.keys() <= Options.model_fields.keys() else Task
    return file_alone(path, model, content)


def _is_plan(path: Path) -> bool:
    try:
        return read_content(path, Options).keys() <= Options.model_fields.keys()
    except ArmloadError:  # some other program's
        return False


def is_agreed(files: Sequence[TrustedFile]) -> bool:
    """Show what files would decide, and ask the user whether they may."""
    show_files(files)
    return terminal.confirm("Do you trust these files, and whoever wrote them?")


def show_files(files: Sequence[TrustedFile]) -> None:
    """Show what files would decide, and which of them have changed since they were trusted."""
    changed = {each.path for each in trusted_files()}
    terminal.say("These files decide what runs on this machine and on your boards:")
    terminal.say("\n".join(file_lines(files)))
    if again := [str(each.path) for each in files if each.path in changed]:
        terminal.say(f"Changed since you trusted them: {', '.join(again)}.")


def file_lines(files: Sequence[TrustedFile]) -> Iterator[str]:
    """Yield the path of each file, and the keys that decide."""
    for each in files:
        yield visible(str(each.path))
        for key, value in each.keys.items():
            yield visible(f"  {key}: {value}")
