"""A benchmark on several boards: repeated on each, or divided between them."""

from __future__ import annotations

from collections.abc import Sequence

from armload.analysis.repeats import Precision
from armload.analysis.run import Run
from armload.bench.combination import Combination
from armload.bench.single import repeat_until_known
from armload.bench.sweep import SweepFolder
from armload.bench.sweeping import run_sweep
from armload.cli import terminal
from armload.cli.error_output import end_if_failed
from armload.cli.present import SweepProgress, need_a_run, show_sweep
from armload.cli.streams import show_document
from armload.core.errors import ArmloadError
from armload.core.progress import Labelled, Progress
from armload.engines.job import SweepPoint
from armload.fleet.shared_sweep import share_sweep
from armload.fleet.threads import on_each
from armload.report.layout import whole
from armload.report.repeats import progress_line
from armload.report.side_by_side import results_on_boards, swept_boards
from armload.report.sweep import sweep_view
from armload.runs.reach import Reach
from armload.runs.request import Request


def bench_on_each_and_present(
    request: Request,
    boards: Sequence[str],
    cells: Sequence[Combination],
    wanted: Precision | None,
    reach: Reach,
    *,
    repeats: int,
    warmups: int,
    as_json: bool,
    reference: Run | None = None,
) -> None:
    """Run a sweep on every board, and show its cells side by side.

    Args:
        wanted: how exactly the one cell is to be known; none where the number of runs is given.

    Raises:
        Exit: it failed on a board; what the others did is shown.
    """
    progress = terminal.progress()
    journals: dict[str, SweepFolder] = {}

    def swept(board: str, own: Progress) -> None:
        theirs = request.model_copy(update={"board": board})
        lines = SweepProgress(own)

        def begun(journal: SweepFolder) -> None:
            journals[board] = journal
            if wanted is None:
                lines.begin(journal)

        if wanted is None:
            run_sweep(
                *(theirs, cells, own),
                repeats=repeats,
                warmups=warmups,
                reference=reference,
                reach=reach,
                begun=begun,
                report=lines.report,
            )
        else:
            repeat_until_known(
                *(theirs, cells[0], wanted, own),
                reference=reference,
                reach=reach,
                begun=begun,
                report=lambda runs: own.say(progress_line(runs)),
            )

    errors = {one.board: one.error for one in on_each(boards, swept, progress)}
    results = results_on_boards({name: journals[name] for name in boards if name in journals})
    if as_json:
        show_document(swept_boards(journals, errors, results))
    elif results:
        terminal.show(sweep_view(results))
        for journal in journals.values():
            terminal.show(whole(f"sweep    {journal.folder}"))
        ids = " ".join(journal.sweep.id for journal in journals.values())
        terminal.show(whole(f"charts   {terminal.program()} report {ids}"))
    end_if_failed(errors)
    need_a_run(results, ", ".join(boards))


def share_and_present(
    request: Request,
    boards: Sequence[str],
    cells: Sequence[Combination],
    reach: Reach,
    *,
    repeats: int,
    as_json: bool,
    reference: Run | None = None,
) -> None:
    """Divide a sweep between identical boards, and show its cells.

    Raises:
        Exit: a board failed; what was run is shown.
    """
    progress = terminal.progress()
    lines = SweepProgress(progress)

    def report(board: str, place: SweepPoint, ended: Run | ArmloadError) -> None:
        lines.report(place, ended, Labelled(progress, board))

    journal, errors = share_sweep(
        *(request, boards, cells, progress),
        repeats=repeats,
        reference=reference,
        reach=reach,
        begun=lines.begin,
        report=report,
    )
    results = show_sweep(journal, as_json=as_json)
    end_if_failed({board: errors.get(board) for board in boards})
    need_a_run(results, ", ".join(boards))
