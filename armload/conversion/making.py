"""A run that makes a file of a model, and the file's way from the run into the cache."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from armload.analysis.run import Run
from armload.boards.board import LocalReach
from armload.conversion.cached import lock_of, part_in
from armload.core.errors import RunError
from armload.core.files import content, written_in
from armload.core.locks import locked
from armload.core.progress import Progress
from armload.core.workspace import runs_folder
from armload.deploy.clean import delete_folders
from armload.deploy.layout import STDOUT_FILE, Layout
from armload.engines.model_program import InPlace, ModelTool, ToolPlan
from armload.models.model import Model
from armload.runs.pipeline import execute
from armload.runs.session import Predictor, Session

_COMPLAINT = re.compile(r"(?im)^.*\b(?:fail|error|you need|tokenizes to)\w*\b.*$")
_MOST_COMPLAINTS = 2


@dataclass(frozen=True, kw_only=True)
class ModelSource:
    """What a file is made of, and where.

    Attributes:
        where: the board, with the programs.
        base: the model.
        tensors: that it has.
        label: of llama.cpp's source.
    """

    where: Session
    base: Model
    tensors: int
    label: str

    @property
    def is_here(self) -> bool:
        """Whether the board is this machine, so that nothing need be copied."""
        return isinstance(self.where.connection.board.reach, LocalReach)

    @property
    def board(self) -> str:
        return self.where.connection.board.name

    @property
    def layout(self) -> Layout:
        return Layout(workdir=self.where.connection.board.workdir)

    def in_place(self, place: Path) -> InPlace | None:
        """Say where the files are, if the board is this machine."""
        if not self.is_here:
            return None
        paths = (self.base.path.resolve(), part_in(place).resolve())
        base, result = (PurePosixPath(path) for path in paths)
        return InPlace(base=base, result=result)


@contextmanager
def making_lock(place: Path, progress: Progress) -> Iterator[None]:
    """Let nobody else make the same at the same time; what they have made is there then."""
    waiting = "Another armload process is making the same file. Waiting for it."
    with written_in(place), locked(lock_of(place), progress, waiting=waiting):
        place.mkdir(parents=True, exist_ok=True)
        yield


def run_tool(
    source: ModelSource,
    engine: ModelTool[ToolPlan],
    place: Path,
    progress: Progress,
    *,
    check: Predictor,
) -> Run:
    """Run what makes a file, and leave the file as ``part_in(place)``, with the run beside it.

    Args:
        check: refuses a board before anything is copied.
    """
    part = part_in(place)
    try:
        # What has left no part cannot be resumed.
        new = source.where.request.new or (engine.result is None and not part.exists())
        run, folder = execute(source.where, engine, progress, new=new, predictor=check)
        if run.exit.status != 0:
            raise RunError(
                f"{source.board}: {engine.name} did not finish with {source.base.name}: "
                f"{_reason(run, folder)}.",
                f"All of its messages: {folder / STDOUT_FILE}",
            )
        if engine.result is not None:
            shutil.move(folder / engine.result, part)
    except BaseException:
        part.unlink(missing_ok=True)
        if engine.result is not None:
            for path in runs_folder().glob(f"*-{source.board}-*/{engine.result}"):
                path.unlink(missing_ok=True)
        raise
    kept = place / "run"
    shutil.rmtree(kept, ignore_errors=True)
    shutil.move(folder, kept)
    delete_folders(source.where.connection.host, [source.layout.run(run.id)])
    return run


def _reason(run: Run, folder: Path) -> str:
    if run.exit.kind != "exit status":  # the board knows better what ended it
        return run.exit.meaning
    log = content(folder / STDOUT_FILE).decode("utf-8", "replace")
    complaints = [each.strip() for each in _COMPLAINT.findall(log)]
    said = "; ".join(dict.fromkeys(complaints[-_MOST_COMPLAINTS:]))
    return said.rstrip(".") or run.exit.meaning
