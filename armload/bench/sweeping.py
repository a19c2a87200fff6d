"""A sweep: cells that are run in turn, again and again, from where it stopped."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from armload.analysis.run import Run
from armload.bench.board import bench_board
from armload.bench.combination import Combination, combination
from armload.bench.suite import Suite
from armload.bench.sweep import SweepFolder, new_sweep, resume_or_begin
from armload.core.errors import ArmloadError, BusyError, ConnectError, UsageError
from armload.core.progress import Progress
from armload.engines.job import SweepPoint
from armload.engines.plan import Plan
from armload.models.find import model_called
from armload.models.model import Model
from armload.runs.reach import CONNECTED, Reach
from armload.runs.request import Request

Begun = Callable[[SweepFolder], None]
"""Is shown a sweep before its first run."""

Report = Callable[[SweepPoint, Run | ArmloadError], None]
"""Is called with how each run ended, or why it could not be started."""


def combinations(
    model_names: Sequence[str],
    plans: Sequence[Plan],
    progress: Progress,
    decided: Callable[[Model, Plan], Plan] = lambda _, plan: plan,
) -> tuple[Combination, ...]:
    """Return every plan with every model, as the cells of a sweep.

    Args:
        model_names: as for ``model_called``.
        decided: returns a plan with what it leaves to the model and the board.
    """
    return tuple(
        combination(model, decided(model, plan), progress, reference=name)
        for name, model in _models_called(model_names, plans, progress)
        for plan in plans
    )


def suite_cells(
    model_names: Sequence[str],
    plans: Sequence[Plan],
    suite: Suite,
    progress: Progress,
    decided: Callable[[Model, Plan], Plan],
) -> tuple[Combination, ...]:
    """Return the cells of a suite, without tests that are too long for a model; these are said."""
    found: list[Combination] = []
    for name, model in _models_called(model_names, plans, progress):
        too_long = suite.too_long_for(model)
        if too_long:
            names = ", ".join(test.name for test in too_long)
            progress.say(
                f"{suite.title}: missing {names}: {model.name} was trained for a context of "
                f"{model.context_length:,} tokens. An incomplete suite has no "
                "score; use a model with a longer context for one."
            )
        found += (
            combination(model, decided(model, plan), progress, reference=name)
            for plan in plans
            if suite.test_of(plan) not in too_long
        )
    if not found:
        raise UsageError(
            f"{suite.title}: every test is too long for these models.",
            "Use a model with a longer context.",
        )
    return tuple(found)


def _models_called(
    names: Sequence[str], plans: Sequence[Plan], progress: Progress
) -> list[tuple[str, Model]]:
    """Return models with what they are called; no file under two names."""
    embeds = any(plan.embed is not None for plan in plans)
    models = [(name, model_called(name, progress, or_embeds=embeds)) for name in names]
    known: dict[str, str] = {}
    for name, model in models:
        other = known.setdefault(model.sha256, name)
        if other != name:
            raise UsageError(
                f"--model: {other} and {name} are the same file.",
                "List it once; use --repeats to run a combination more than once.",
            )
    return models


def run_sweep(
    request: Request,
    cells: Sequence[Combination],
    progress: Progress,
    *,
    repeats: int,
    warmups: int,
    reference: Run | None = None,
    suite: Suite | None = None,
    reach: Reach = CONNECTED,
    begun: Begun,
    report: Report,
) -> SweepFolder:
    """Run every cell, and record each run as soon as it is fetched.

    A run that fails is a result like any other. What an interrupted command of the same kind has
    done is not done again, unless ``request.new`` says so.

    Args:
        request: where, and with which program.
        repeats: runs of every cell that count.
        warmups: runs of every cell before them.
        reference: a run with the expected output.
        suite: whose tests the cells are.
        reach: how the board is reached.
        begun: is shown the sweep before its first run.
        report: called for every run.
    """
    with bench_board(reach, request, cells, progress, reference=reference) as board:
        sweep = new_sweep(
            [board.name], board.engines, repeats=repeats, warmups=warmups, suite=suite
        )
        journal = resume_or_begin(sweep, progress, new=request.new)
        with journal.locked(progress):
            begun(journal)
            left = journal.missing()
            total = len(left) + len(journal.entries)
            with progress.step(f"Sweep on {board.name}", total=total, unit="runs") as step:
                for done, place in enumerate(left, start=len(journal.entries)):
                    step.update(done)
                    ended: Run | ArmloadError
                    try:
                        ended = board.run(place)
                    except (ConnectError, BusyError):
                        raise
                    except ArmloadError as error:
                        ended = error
                    journal.note(place, ended)
                    report(place, ended)
                step.update(total)
    return journal
