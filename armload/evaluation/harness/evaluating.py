"""Running tasks of lm-evaluation-harness on a board."""

from __future__ import annotations

import importlib.util
import json
import logging
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from armload.core.errors import ArmloadError, MissingToolError, UsageError
from armload.core.files import write_whole
from armload.core.progress import Progress
from armload.core.shell import join, pip_install
from armload.core.values import Value
from armload.evaluation.preparing import EvaluationRequest
from armload.evaluation.scorer_settings import ScorerSettings
from armload.models.adapter_file import with_adapters
from armload.models.find import model_called
from armload.models.model import Model
from armload.runs.reach import Reach
from armload.runs.request import Request

PREFIX = "lm-eval:"
RESULTS_FILE = "lm-eval.json"
"""In the last run's folder: everything that the harness returns, with each sample."""


class HarnessTask(Value):
    """What the harness says of one task.

    Attributes:
        name: the task's.
        samples: how many were evaluated.
        metrics: by the harness's names, such as ``acc`` and ``acc_norm``.
        stderr: their standard errors, where the harness gives them.
    """

    name: str
    samples: int
    metrics: Mapping[str, float]
    stderr: Mapping[str, float]


class HarnessResult(Value):
    """What the harness says.

    Attributes:
        harness: its version.
        runs: ids of the runs that answered.
        results: the file with all that it returned.
        tasks: in their order.
    """

    harness: str
    runs: tuple[str, ...]
    results: str
    tasks: tuple[HarnessTask, ...]


def evaluate_with_harness(
    request: Request,
    model: Model,
    names: Sequence[str],
    settings: ScorerSettings,
    progress: Progress,
    *,
    tasks_folder: Path | None,
    limit: int | None,
    reach: Reach,
) -> HarnessResult:
    """Run tasks of the harness with a model on a board.

    Args:
        names: of tasks or groups of tasks, in the harness's words.
        tasks_folder: with further tasks, as YAML files of the harness.
        limit: take the first so many samples of each task only.
        reach: how the board is reached.
    """
    if importlib.util.find_spec("lm_eval") is None:
        raise MissingToolError(
            "Tasks of lm-evaluation-harness need the package lm-eval.",
            f"Install it: {pip_install('lm-eval>=0.4.13')}",
        )
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    import lm_eval
    from lm_eval.tasks import TaskManager

    from armload.evaluation.harness.board_model import BoardModel

    manager = TaskManager(include_path=str(tasks_folder) if tasks_folder else None)
    known = set(manager.all_tasks)
    if unknown := [name for name in names if name not in known]:
        raise UsageError(
            f"lm-evaluation-harness has no task {unknown[0]!r}.",
            "Add your own with --data FOLDER. To list those it has: "
            f"{join([sys.executable, '-m', 'lm_eval', 'ls', 'tasks'])}",
        )
    lm = BoardModel(request, model, settings, progress, reach=reach)
    try:
        found = lm_eval.simple_evaluate(
            model=lm, tasks=list(names), task_manager=manager, limit=limit
        )
    except ArmloadError:
        raise
    except Exception as error:  # a task is Python of its authors and may raise anything
        said = str(error).strip().split("\n")[0]
        raise UsageError(
            f"lm-evaluation-harness could not run {', '.join(names)}: {said}",
            "Without network, give a task whose data are local files: --data FOLDER.",
        ) from error
    path = lm.folders[-1] / RESULTS_FILE
    write_whole(path, json.dumps(found, indent=1, default=str).encode())
    return HarnessResult(
        harness=lm_eval.__version__,
        runs=tuple(folder.name for folder in lm.folders),
        results=str(path),
        tasks=tuple(_task(name, found) for name in found["results"]),
    )


def _task(name: str, found: Mapping[str, Any]) -> HarnessTask:
    metrics: dict[str, float] = {}
    stderr: dict[str, float] = {}
    for key, value in found["results"][name].items():
        metric, _, filtered = key.partition(",")
        if not isinstance(value, int | float) or not filtered:
            continue
        kind = stderr if metric.endswith("_stderr") else metrics
        label = metric.removesuffix("_stderr")
        kind[label if filtered == "none" else f"{label} ({filtered})"] = value
    samples = found.get("n-samples", {}).get(name, {}).get("effective", 0)
    return HarnessTask(name=name, samples=samples, metrics=metrics, stderr=stderr)


def evaluate_with(
    request: Request,
    asked: EvaluationRequest,
    settings: ScorerSettings,
    progress: Progress,
    *,
    reach: Reach,
) -> HarnessResult:
    """Evaluate one model on one board with tasks that ``asked.task`` names: ``lm-eval:a,b``.

    Raises:
        ArmloadError: as for ``evaluate_with_harness``.
    """
    names = [name for name in asked.task.removeprefix(PREFIX).split(",") if name]
    if not names:
        raise UsageError(
            f"--task {asked.task}: the name of the task is missing.", "Write --task lm-eval:piqa."
        )
    model_name = asked.only_model(f"{PREFIX}…")
    folder = Path(asked.data) if asked.data else None
    if folder and not folder.is_dir():
        raise UsageError(
            f"--data {folder}: this is not a folder.", "Give a folder with the task's YAML."
        )
    return evaluate_with_harness(
        request,
        with_adapters(model_called(model_name, progress), settings.adapters, progress),
        names,
        settings,
        progress,
        tasks_folder=folder,
        limit=asked.limit,
        reach=reach,
    )
