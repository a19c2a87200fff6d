"""Running a sweep: cell after cell, round after round, from where it stopped."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from armload.bench import store
from armload.bench.assemble import with_reference
from armload.bench.engine import check_architecture, whole_plan
from armload.bench.job import check_cores
from armload.bench.plan import Plan
from armload.bench.record import Place
from armload.bench.run import Run
from armload.bench.runner import run_plan
from armload.bench.session import Request, Session, chosen_model, session
from armload.bench.sweep import Entry, Journal, begin, new_sweep, unfinished
from armload.boards.probe import parse_probe, probe_script
from armload.core.errors import ArmloadError, BusyError, ConnectError
from armload.core.progress import Progress
from armload.core.workspace import runs_folder
from armload.models.model import Model

Told = Callable[[Place, Run | ArmloadError], None]
"""Is told how each run ended, or why it could not be started."""


def run_sweep(
    request: Request,
    model_names: Sequence[str],
    plans: Sequence[Plan],
    progress: Progress,
    *,
    repeats: int,
    warmups: int,
    reference: Run | None = None,
    begun: Callable[[Journal], None],
    told: Told,
) -> Journal:
    """Run every plan with every model, and note each run as soon as it is home.

    A run that fails is a result like any other. What an interrupted command of the same kind has
    done is not done again, unless ``request.new`` says so.

    Args:
        request: where, and with which program.
        model_names: as for ``chosen_model``.
        plans: what to run with each of them.
        progress: where it is shown.
        repeats: runs of every cell that count.
        warmups: runs of every cell before them.
        reference: a run whose text those of all runs must be.
        begun: is shown the sweep before its first run.
        told: is told of every run.

    Raises:
        UsageError: a cell does not suit its model or the board; none was run then.
        ConnectError, BusyError: the board stayed away, or is somebody else's; the same command
            goes on from there.
        KeyboardInterrupt: likewise.
    """
    models = [chosen_model(name, progress) for name in model_names]
    cells = [(model, whole_plan(plan, model)) for model in models for plan in plans]
    with session(request, progress) as where:
        _check(where, cells)
        sweep = new_sweep(where.board.name, cells, where.binary, repeats=repeats, warmups=warmups)
        journal = (None if request.new else unfinished(sweep, progress)) or begin(sweep)
        with journal.locked(progress):
            begun(journal)
            left = journal.missing()
            total = len(left) + len(journal.entries)
            with progress.step(f"Sweep on {where.board.name}", total=total, unit="runs") as step:
                # Only the first can be one that an interrupted command has left on the board.
                new = request.new
                for done, place in enumerate(left, start=len(journal.entries)):
                    step.update(done)
                    model, plan = cells[place.cell]
                    ended = _run_one(where, model, plan, place, progress, new=new)
                    if isinstance(ended, Run):
                        if reference is not None:
                            ended = with_reference(ended, reference)
                            store.save(ended, runs_folder() / ended.id)
                        journal.note(Entry(cell=place.cell, round=place.round, run=ended.id))
                    else:
                        journal.note(Entry(cell=place.cell, round=place.round, error=ended.message))
                    told(place, ended)
                    new = True
                step.update(total)
    return journal


def _run_one(
    where: Session, model: Model, plan: Plan, place: Place, progress: Progress, *, new: bool
) -> Run | ArmloadError:
    try:
        run, _ = run_plan(where, plan, model, progress, new=new, place=place)
    except (ConnectError, BusyError):
        raise
    except ArmloadError as error:
        return error
    return run


def _check(where: Session, cells: Sequence[tuple[Model, Plan]]) -> None:
    script = probe_script(where.board)
    found = parse_probe(where.host.run(script).stdout, where.board.name)
    for model, plan in cells:
        check_architecture(where.binary.path, model)
        check_cores(plan, where.board, found)
