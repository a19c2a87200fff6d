"""The same sweep on several boards, all at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from armload.analysis.repeats import Precision
from armload.analysis.run import Run
from armload.bench.combination import Combination
from armload.bench.single import repeat_until_known
from armload.bench.sweep import SweepFolder
from armload.bench.sweeping import run_sweep
from armload.core.errors import ArmloadError
from armload.core.progress import Progress
from armload.engines.job import SweepPoint
from armload.fleet.threads import on_each
from armload.runs.reach import Reach
from armload.runs.request import Request


class _Lines(Protocol):
    def begin(self, journal: SweepFolder) -> None:
        """Say what is there already."""

    def report(self, place: SweepPoint, ended: Run | ArmloadError) -> None:
        """Say how a run ended."""


def sweep_on_each(
    request: Request,
    boards: Sequence[str],
    cells: Sequence[Combination],
    wanted: Precision | None,
    reach: Reach,
    progress: Progress,
    *,
    repeats: int,
    warmups: int,
    reference: Run | None,
    lines: Callable[[Progress], _Lines],
    line: Callable[[Sequence[Run]], str],
) -> tuple[Mapping[str, SweepFolder], Mapping[str, ArmloadError | None]]:
    """Run a sweep on every board.

    Args:
        wanted: how exactly the one cell is to be known; none where the number of runs is given.
        lines: make what reports a board's sweep.
        line: reports the repeats of the one cell.

    Returns:
        The sweep of each board where it began, and why boards failed.
    """
    journals: dict[str, SweepFolder] = {}

    def swept(board: str, own: Progress) -> None:
        theirs = request.model_copy(update={"board": board})
        told = lines(own)

        def begun(journal: SweepFolder) -> None:
            journals[board] = journal
            if wanted is None:
                told.begin(journal)

        if wanted is None:
            run_sweep(
                *(theirs, cells, own),
                repeats=repeats,
                warmups=warmups,
                reference=reference,
                reach=reach,
                begun=begun,
                report=told.report,
            )
        else:
            repeat_until_known(
                *(theirs, cells[0], wanted, own),
                reference=reference,
                reach=reach,
                begun=begun,
                report=lambda runs: own.say(line(runs)),
            )

    errors = {one.board: one.error for one in on_each(boards, swept, progress)}
    return journals, errors
