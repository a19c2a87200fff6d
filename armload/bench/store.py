"""Runs as folders on the laptop: ``runs/<id>/run.json`` beside the raw files."""

from __future__ import annotations

import difflib
import json
from pathlib import Path

from pydantic import ValidationError

from armload.bench.run import FORMAT, Run
from armload.core.errors import DataError, UsageError
from armload.core.files import write_whole
from armload.core.workspace import runs_folder

RUN_FILE = "run.json"


def save(run: Run, folder: Path) -> Path:
    """Write ``run.json`` into the run's folder and return its path."""
    path = folder / RUN_FILE
    write_whole(path, (run.model_dump_json(indent=1) + "\n").encode())
    return path


def load(folder: Path) -> Run:
    """Read a run's folder.

    Raises:
        UsageError: there is no ``run.json``.
        DataError: it is of a newer format, or was changed by hand and no longer fits.
    """
    path = folder / RUN_FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(
            f"{folder} holds no {RUN_FILE}.",
            "Name the folder of a finished run; 'armload show' lists them.",
        ) from None
    except (OSError, ValueError) as error:
        raise DataError(
            f"{path}: this is no JSON document: {error}.",
            "If the raw files lie beside it, 'armload pull' makes it again.",
        ) from error
    version = content.get("format") if isinstance(content, dict) else None
    if isinstance(version, int) and version > FORMAT:
        raise DataError(
            f"{path}: its format is {version}, and this armload reads up to {FORMAT}.",
            "Upgrade armload: pip install --upgrade armload.",
        )
    try:
        return Run.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"]) or "the document"
        raise DataError(f"{path}: {key}: {first['msg']}.") from error


def run_folders() -> list[Path]:
    """Return the folders of all finished runs, the oldest first."""
    return sorted(path.parent for path in runs_folder().glob(f"*/{RUN_FILE}"))


def find(reference: str) -> Path:
    """Return the folder that a person means.

    Args:
        reference: a folder, a run's id or the beginning of one, the end of one, ``latest``, or
            ``latest:TEXT`` for the latest whose id holds that text (a board or a model).

    Raises:
        UsageError: no run, or more than one, fits.
    """
    if (Path(reference) / RUN_FILE).is_file():
        return Path(reference)
    folders = run_folders()
    if not folders:
        raise UsageError(
            f"There are no runs in {runs_folder()} yet.",
            "Make one: armload demo, or armload bench --board BOARD --model FILE.gguf.",
        )
    if reference == "latest" or reference.startswith("latest:"):
        wanted = reference.partition(":")[2]
        fitting = [folder for folder in folders if wanted in folder.name]
        if fitting:
            return fitting[-1]
    else:
        fitting = [
            folder
            for folder in folders
            if folder.name.startswith(reference) or folder.name.endswith(reference)
        ]
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            raise UsageError(
                f"{len(fitting)} runs fit {reference!r}: "
                + ", ".join(folder.name for folder in fitting[-4:])
                + ".",
                "Give more of the id.",
            )
    near = difflib.get_close_matches(reference, [folder.name for folder in folders], n=3, cutoff=0)
    raise UsageError(
        f"No run is called {reference!r}.", f"There are, for instance: {', '.join(near)}."
    )
