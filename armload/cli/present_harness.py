"""Run tasks of lm-evaluation-harness on a board, and lay the result before a person."""

from __future__ import annotations

from pathlib import Path

from armload.cli import terminal
from armload.cli.document import show_document
from armload.core.errors import UsageError
from armload.evaluation.harness.evaluating import PREFIX, evaluate_with_harness
from armload.evaluation.preparing import Asked
from armload.evaluation.way import Way
from armload.models.find import model_called
from armload.report.evaluation.harness import harness_view
from armload.runs.request import Request


def harness_and_present(request: Request, asked: Asked, way: Way, *, as_json: bool) -> None:
    """Evaluate one model on one board with tasks that ``asked.task`` names: ``lm-eval:a,b``.

    Raises:
        ArmloadError: as for ``evaluate_with_harness``.
    """
    names = [name for name in asked.task.removeprefix(PREFIX).split(",") if name]
    if not names:
        raise UsageError(f"--task {asked.task} names no task.", "Write --task lm-eval:piqa.")
    if len(asked.models) != 1 or len(asked.boards) != 1:
        raise UsageError(f"--task {PREFIX}… takes one model and one board.", "Name one of each.")
    folder = Path(asked.data) if asked.data else None
    if folder and not folder.is_dir():
        raise UsageError(f"--data {folder}: no folder.", "Give a folder with the task's YAML.")
    progress = terminal.progress()
    found = evaluate_with_harness(
        request,
        model_called(asked.models[0], progress),
        names,
        way,
        progress,
        tasks_folder=folder,
        limit=asked.limit,
    )
    if as_json:
        show_document(found)
    else:
        terminal.show(harness_view(found))
