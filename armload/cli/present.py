"""Run a plan and lay the result before a person, or a program."""

from __future__ import annotations

import contextlib
import importlib
import threading
from pathlib import Path

from armload.bench import store
from armload.bench.assemble import with_reference
from armload.bench.plan import Plan
from armload.bench.run import Run
from armload.bench.runner import bench
from armload.bench.session import Request
from armload.cli import terminal
from armload.core.errors import RunError


def bench_and_present(
    request: Request,
    model_name: str,
    plan: Plan,
    *,
    as_json: bool,
    reference: Run | None = None,
) -> None:
    """Run, write the page and the picture beside the run, and show the figures.

    With a reference the run's text is compared with that run's, and the verdict says so.

    Raises:
        RunError: the program did not end well; what it left is kept and shown all the same.
    """
    load_charting_meanwhile()
    run, folder = bench(request, model_name, plan, terminal.progress())
    if reference is not None:
        run = with_reference(run, reference)
        store.save(run, folder)
    present(run, folder, as_json=as_json)


def present(run: Run, folder: Path, *, as_json: bool) -> None:
    """Write a run's page and, of its tokens, a picture beside it, and show its figures.

    Raises:
        RunError: the program did not end well; what it left is kept and shown all the same.
    """
    from armload.report.page import write_report
    from armload.report.table import run_table

    page, picture = write_report(run, folder)
    if as_json:
        terminal.show_json(run.model_dump_json(indent=1))
    else:
        terminal.show(run_table(run))
        for label, path in (("page", page), ("picture", picture), ("record", folder / "run.json")):
            if path is None:
                continue
            terminal.results().print(f"{label:8} {path}", highlight=False, soft_wrap=True)
    if run.exit.status != 0:
        remedy = f"{run.exit.remedy} Everything that came back lies in {folder}."
        raise RunError(f"{run.board.name}: {run.exit.meaning}", remedy.strip())


def load_charting_meanwhile() -> None:
    """Load the charting libraries beside other work.

    They take a second; while a board is busy, the laptop is not.
    """
    threading.Thread(target=_load_charting, daemon=True).start()


def _load_charting() -> None:
    from armload.report.html import libraries

    with contextlib.suppress(ImportError, OSError):  # writing the page will say it
        importlib.import_module("altair")
        libraries()
