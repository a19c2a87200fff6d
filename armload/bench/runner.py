"""The one way through: from a plan to a run that is kept."""

from __future__ import annotations

from pathlib import Path

from armload.bench.engine import check_architecture, whole_plan
from armload.bench.following import started, taken_over
from armload.bench.job import asked_for, new_job
from armload.bench.memory import doubt_about_memory
from armload.bench.plan import Plan
from armload.bench.record import Place
from armload.bench.run import Run
from armload.bench.session import Request, Session, chosen_model, session
from armload.bench.setting import set_up
from armload.bench.takeover import left_for
from armload.boards.probe import probe
from armload.core.progress import Progress
from armload.deploy.launch import launch
from armload.deploy.layout import Layout
from armload.deploy.lease import Lease
from armload.deploy.mark import Mark
from armload.deploy.patience import patiently
from armload.models.model import Model


def bench(request: Request, model_name: str, plan: Plan, progress: Progress) -> tuple[Run, Path]:
    """Run a plan on a board and keep what comes back; return it with its folder.

    Args:
        request: where, and with which program.
        model_name: a GGUF file, ``hf:ORG/REPO/FILE.gguf``, ``like:SHAPE:TYPE`` or ``demo``.
        plan: what to run.
        progress: where it is shown.

    Raises:
        ArmloadError: as for ``run_plan``, or the board has not what it needs.
        KeyboardInterrupt: after what is there was kept.
    """
    model = chosen_model(model_name, progress)
    plan = whole_plan(plan, model)  # one that does not suit the model is refused before any work
    with session(request, progress) as where:
        return run_plan(where, plan, model, progress, new=request.new)


def run_plan(
    where: Session,
    plan: Plan,
    model: Model,
    progress: Progress,
    *,
    new: bool,
    place: Place | None = None,
) -> tuple[Run, Path]:
    """Run a plan in a session and keep what comes back; return it with its folder.

    What an interrupted command of this laptop left there of the same request is taken over
    instead. A program that fails is a result too: the run says so. Ctrl-C ends the program on
    the board; what it left is brought home before the interruption goes on.

    Args:
        where: the board and the program.
        plan: with its prompt, as ``whole_plan`` gives it.
        model: what to run.
        progress: where it is shown.
        new: start another run, even if the same one was left there.
        place: of the run in a sweep.

    Raises:
        ArmloadError: the run could not be started, or its results not be fetched.
        KeyboardInterrupt: after what is there was kept.
    """
    check_architecture(where.binary.path, model)
    same = asked_for(plan, where.binary, model)
    left = None if new else left_for(where.reached, same, progress)
    if left is None:
        with where.leased(progress) as lease:
            if lease.waited and not new:
                left = left_for(where.reached, same, progress)
            if left is None:
                return _launched(where, model, plan, lease, progress, place)
    return taken_over(where.reached, left, progress, total=plan.n_predict, unit="tokens")


def _launched(
    where: Session,
    model: Model,
    plan: Plan,
    lease: Lease,
    progress: Progress,
    place: Place | None,
) -> tuple[Run, Path]:
    deployment = where.deployed(model, progress)
    reached, host, board = where.reached, where.host, where.board
    # Copying fills the page cache and wakes the CPU: after it, the board is another.
    found = deployment.found
    if deployment.sent:
        found = patiently(lambda: probe(host, board))
    ready = set_up(
        *(host, board, plan, where.request.state),
        found=found,
        model=deployment.model,
        progress=progress,
    )
    doubt = doubt_about_memory(plan, model, board, ready.found.conditions, ready.found.rates)
    if doubt:
        progress.say(doubt)
    job = new_job(
        plan,
        board=board,
        probe=ready.found,
        binary=where.binary,
        model=model,
        on_board=deployment.program,
        model_on_board=deployment.model,
        launcher=ready.before_program,
        place=place,
    )
    on_board = Layout(workdir=board.workdir).run(job.id)

    def start() -> None:
        launch(
            host,
            run_folder=on_board,
            argv=job.command,
            trace=True,
            time_limit_s=plan.time_limit_s,
            job=job.model_dump_json().encode(),
            mark=Mark.of_this_process(job.asked_for).word,
            lease=lease,
            uses=[deployment.program.parent, deployment.model.parent],
            beforehand=ready.beforehand,
        )

    return started(
        start, reached, on_board, job, lease, progress, total=plan.n_predict, unit="tokens"
    )
