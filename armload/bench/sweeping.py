"""A sweep: cells that are run in turn, again and again, from where it stopped."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from armload.analysis.run import Run
from armload.bench.single import combination, programs_of
from armload.bench.sweep import SweepEntry, SweepFolder, new_sweep, resume_or_begin
from armload.core.errors import ArmloadError, BusyError, ConnectError, UsageError
from armload.core.progress import Progress
from armload.engines.completion import settings_of
from armload.engines.job import SweepPoint
from armload.engines.plan import Plan
from armload.models.find import model_called
from armload.models.model import Model
from armload.runs.pipeline import execute
from armload.runs.predicting import foresight
from armload.runs.request import Request
from armload.runs.session import session

Report = Callable[[SweepPoint, Run | ArmloadError], None]
"""Is called with how each run ended, or why it could not be started."""


def run_sweep(
    request: Request,
    model_names: Sequence[str],
    plans: Sequence[Plan],
    progress: Progress,
    *,
    repeats: int,
    warmups: int,
    reference: Run | None = None,
    begun: Callable[[SweepFolder], None],
    report: Report,
) -> SweepFolder:
    """Run every plan with every model, and record each run as soon as it is fetched.

    A run that fails is a result like any other. What an interrupted command of the same kind has
    done is not done again, unless ``request.new`` says so.

    Args:
        request: where, and with which program.
        model_names: as for ``model_called``.
        plans: what to run with each of them.
        repeats: runs of every cell that count.
        warmups: runs of every cell before them.
        reference: a run with the expected output.
        begun: is shown the sweep before its first run.
        report: called for every run.

    Raises:
        UsageError: a cell does not suit its model or the board, or two names are of one model; none
            was run then.
        ConnectError, BusyError: the board stayed unreachable, or is in use; repeating the command
            resumes from there.
        KeyboardInterrupt: likewise.
    """
    models = [model_called(name, progress) for name in model_names]
    _refuse_doubles(model_names, models)
    cells = [combination(model, plan, progress) for model in models for plan in plans]
    settings = [settings_of(cell.plan) for cell in cells]
    with session(request, programs_of(cells), progress, settings=settings) as where:
        board = where.connection.board
        engines = [cell.engine(where.binaries) for cell in cells]
        sweep = new_sweep(board.name, engines, repeats=repeats, warmups=warmups)
        journal = resume_or_begin(sweep, progress, new=request.new)
        with journal.locked(progress):
            begun(journal)
            left = journal.missing()
            total = len(left) + len(journal.entries)
            with progress.step(f"Sweep on {board.name}", total=total, unit="runs") as step:
                # Only the first can be one that an interrupted command has left on the board.
                new = request.new
                for done, place in enumerate(left, start=len(journal.entries)):
                    step.update(done)
                    ended: Run | ArmloadError
                    try:
                        ended, _ = execute(
                            *(where, engines[place.cell], progress),
                            new=new,
                            place=place,
                            reference=reference,
                            foresee=foresight(where, engines[place.cell], progress),
                        )
                        entry = SweepEntry(cell=place.cell, round=place.round, run=ended.id)
                    except (ConnectError, BusyError):
                        raise
                    except ArmloadError as error:
                        ended = error
                        entry = SweepEntry(cell=place.cell, round=place.round, error=error.message)
                    journal.append(entry)
                    report(place, ended)
                    new = True
                step.update(total)
    return journal


def _refuse_doubles(names: Sequence[str], models: Sequence[Model]) -> None:
    known: dict[str, str] = {}
    for name, model in zip(names, models, strict=True):
        other = known.setdefault(model.sha256, name)
        if other != name:
            raise UsageError(
                f"--model: {other} and {name} are the same file.",
                "List it once; use --repeats to run a combination more than once.",
            )
