"""The services that run on a board: finding them, and ending them."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from pathlib import Path, PurePosixPath

from armload.analysis.run import Run
from armload.boards.board import Board
from armload.boards.connect import connect, is_off
from armload.boards.host import Host
from armload.core.errors import BusyError, UsageError
from armload.core.progress import Progress
from armload.core.shell import quote
from armload.core.values import Value, parse_json
from armload.deploy.board_runs import StoredRun, list_runs
from armload.deploy.follow import stop
from armload.deploy.heartbeat import heartbeat
from armload.deploy.launch import JOB_MARK
from armload.deploy.layout import Layout
from armload.deploy.retry import FIRST_ANSWER_S, Retry, with_retries
from armload.engines.job import Job
from armload.engines.server import SERVER
from armload.engines.service_plan import ServingPlan
from armload.runs.board_services import report_ended_services
from armload.runs.fetch import fetch_once, mark_fetched


class RunningService(Value):
    """A model that a board serves now.

    Attributes:
        run: its id.
        board: that serves it.
        model, model_sha256: of the file.
        plan: how it is served.
        started_utc: when.
        is_detached: it goes on until it is stopped; else as long as the command that started it.
        is_ours: it was started from this machine.
        port: on the board's loopback; none before the model is loaded.
    """

    run: str
    board: str
    model: str
    model_sha256: str
    plan: ServingPlan
    started_utc: str
    is_detached: bool
    is_ours: bool
    port: int | None


def services(board: Board, progress: Progress) -> tuple[RunningService, ...]:
    """Return what a board serves; nothing where it is a virtual one that is off."""
    if is_off(board):
        return ()
    with closing(connect(board, progress)) as host:
        found = services_at(host, board, Retry(unanswered_s=FIRST_ANSWER_S))
        report_ended_services(host, board, progress)
        return found


def services_at(host: Host, board: Board, retry: Retry | None = None) -> tuple[RunningService, ...]:
    """Return what a board serves, asked over a connection.

    Args:
        retry: with its first answer; none where it has answered before.
    """
    return tuple(
        _described(host, board, run, job)
        for run in with_retries(lambda: list_runs(host, board.workdir), retry)
        if run.state == "running" and (job := service_job(host, run.folder)) is not None
    )


def stop_service(board: Board, progress: Progress, *, run: str, force: bool) -> tuple[Run, Path]:
    """End a board's service, and keep what it left; return it as a run with its folder.

    Args:
        run: the service's id, or the beginning of one; empty for the only one there.
        force: also one that another machine started.
    """
    there = [each for each in services(board, progress) if each.run.startswith(run)]
    if not there:
        raise UsageError(
            f"{board.name} has no service{f' with the id {run}' if run else ''}.",
            f"List its services: armload service.list --board {board.name}"
            if run
            else "Choose another board with --board.",
        )
    (service, *_) = there
    if not service.is_ours and not force:
        raise BusyError(
            f"{board.name}: {service.model} was started from another machine ({service.run}).",
            "Use --force to stop it anyway.",
        )
    with closing(connect(board, progress)) as host:
        folder = Layout(workdir=board.workdir).runs / service.run
        stop(host, folder, finished=True)
        ended = fetch_once(host, board, folder, progress)
        mark_fetched(host, folder)
        return ended


def service_job(host: Host, folder: PurePosixPath) -> Job | None:
    """Return how a service on a board was started; none where that is no service's folder."""
    script = quote(folder / "run.sh")
    line = with_retries(partial(host.run, f"tail -n 1 {script}")).stdout
    try:
        job = Job.model_validate(parse_json(line.removeprefix(JOB_MARK)))
    except ValueError:
        return None
    return job if job.engine_name == SERVER else None


def _described(host: Host, board: Board, run: StoredRun, job: Job) -> RunningService:
    now = with_retries(lambda: heartbeat(host, run.folder, look_only=True))
    return RunningService(
        run=run.id,
        board=board.name,
        model=job.model.name,
        model_sha256=job.model.sha256,
        plan=ServingPlan.model_validate(job.arguments),
        started_utc=job.started_utc,
        is_detached=not now.is_attended,
        is_ours=run.mark is not None and run.mark.holder.is_here,
        port=now.port,
    )
