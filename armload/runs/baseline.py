"""Earlier runs without speculation, which a run with it is compared with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from armload.analysis.run import Run
from armload.analysis.sanity import departure
from armload.analysis.speculation import WithoutSpeculation, compare_with_baseline
from armload.analysis.summary import Summary
from armload.core.files import write_whole
from armload.core.values import Value
from armload.engines.job import Job, RunSpec
from armload.runs import store

FILE_NAME = "without-speculation.json"

_MOST_READ, _MOST_KEPT = 100, 16


class BaselineRun(Value):
    """What is kept of a run without speculation in the folder of one with it."""

    run: str
    valid: bool
    text: str
    s_per_token: float


class Baselines(Value):
    """All of them, the oldest first."""

    runs: tuple[BaselineRun, ...]


def find_baseline(subject: RunSpec, board: str) -> list[Run]:
    """Return this machine's latest runs of the same on a board without speculation.

    Valid ones where there are any; the oldest first.
    """
    if subject.plan is None:
        return []
    wanted = subject.plan.without_speculation
    found = [
        run
        for run in store.latest_on(board, most=_MOST_READ)
        if run.plan is not None
        and run.plan.speculate is None
        and run.plan.without_speculation == wanted
        and run.model.identity == subject.model.identity
        and run.binary.build_id == subject.binary.build_id
        and run.exit.status == 0
        and run.summary.decode_tps
    ]
    valid = [run for run in found if run.verdict.valid] or found
    return list(reversed(valid[:_MOST_KEPT]))


def keep_baseline(runs: Sequence[Run], folder: Path) -> None:
    """Write what a run is to be compared with into that run's folder."""
    kept = tuple(
        BaselineRun(
            run=run.id,
            valid=run.verdict.valid,
            text=run.text,
            s_per_token=1 / run.summary.decode_tps,
        )
        for run in runs
        if run.summary.decode_tps
    )
    if kept:
        write_whole(folder / FILE_NAME, Baselines(runs=kept).model_dump_json(indent=1).encode())


def read_without(job: Job, summary: Summary, text: str, folder: Path) -> WithoutSpeculation | None:
    """Compare a run with those in its folder; none where there are none."""
    path = folder / FILE_NAME
    if not path.is_file() or job.plan is None or summary.speculation is None:
        return None
    baselines = Baselines.model_validate_json(path.read_bytes()).runs
    latest = baselines[-1]
    return compare_with_baseline(
        departure(text, latest.text, name=latest.run),
        [baseline.run for baseline in baselines],
        valid=all(baseline.valid for baseline in baselines),
        baseline_s=[baseline.s_per_token for baseline in baselines],
        speculating_s=[summary.speculation.s_per_token],
    )
