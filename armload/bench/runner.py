"""The one way through: from a board's and a model's name to a run that is kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

from armload.bench.defaults import DEFAULT_WAIT_S
from armload.bench.engine import whole_plan
from armload.bench.home import SEEN_FILE, bring_home
from armload.bench.home import pull as pull
from armload.bench.job import asked_for, new_job
from armload.bench.memory import doubt_about_memory
from armload.bench.plan import Plan
from armload.bench.reached import Reached
from armload.bench.run import Job, Run
from armload.bench.takeover import cut_runs, left_run
from armload.boards.board import Board, load_board
from armload.boards.host import Host
from armload.boards.probe import probe
from armload.build.binary import Binary
from armload.build.builder import build
from armload.build.source import choose
from armload.build.target import load_target
from armload.buildhost.choose import workshop
from armload.core.errors import (
    ArmloadError,
    BoardError,
    ConnectError,
    DataError,
    RunError,
    TransferError,
)
from armload.core.progress import Progress
from armload.core.values import Value
from armload.core.workspace import runs_folder
from armload.deploy.deployment import Deployment, deploy
from armload.deploy.ending import Cut
from armload.deploy.follow import CutShortError, follow, stop
from armload.deploy.launch import launch
from armload.deploy.layout import Layout
from armload.deploy.lease import Lease, leased
from armload.deploy.mark import Mark
from armload.deploy.stored import StoredRun, list_runs
from armload.models.find import resolve
from armload.models.gguf import read_model
from armload.models.model import Model


class Request(Value):
    """What a person asks for, by name.

    Attributes:
        board: a file in ``boards/``.
        model: a GGUF file, ``hf:ORG/REPO/FILE.gguf`` or ``demo``.
        source: a file in ``toolchains/sources``, a llama.cpp folder, or the address of a git
            repository; empty for the pinned source.
        ref: a branch, tag or commit of the repository; empty for its default branch.
        compiler: the engine's: ``zig``, ``gnu`` or ``native``; empty for what is usual there.
        on: a build host that compiles the engine; empty for this machine.
        wait_s: how long to wait for a board that somebody else uses.
        new: start another run, even if an interrupted command left the same one on the board.
    """

    board: str
    model: str
    source: str = ""
    ref: str = ""
    compiler: str = ""
    on: str = ""
    wait_s: float = DEFAULT_WAIT_S
    new: bool = False


class Ready(Value):
    """A board that holds everything a run needs."""

    board: Board
    binary: Binary
    model: Model
    deployment: Deployment


def chosen_model(request: Request, progress: Progress) -> Model:
    """Return the model's facts; make or download it when it is missing.

    Raises:
        UsageError, DataError: there is no such model, or it is not a whole one.
        ConnectError, MissingToolError: it cannot be downloaded.
    """
    return read_model(resolve(request.model, progress), progress)


@contextmanager
def prepared(request: Request, model: Model, progress: Progress) -> Iterator[tuple[Host, Ready]]:
    """Do whatever is missing: build, start a virtual board, deploy.

    Yields the live connection with what lies at its other end; nobody else uses the board
    meanwhile.

    Raises:
        ArmloadError: any of its kinds; whatever was done stays done.
    """
    with _reached(request, progress) as (reached, binary):
        board = reached.board
        with leased(
            reached.host, board.workdir, progress, wait_s=request.wait_s, beside=reached.beside
        ):
            deployment = deploy(reached.host, board, binary=binary, model=model, progress=progress)
            yield (
                reached.host,
                Ready(board=board, binary=binary, model=model, deployment=deployment),
            )


def bench(request: Request, plan: Plan, progress: Progress) -> tuple[Run, Path]:
    """Run a plan on a board and keep what comes back; return it with its folder.

    What an interrupted command of this laptop left there of the same request is taken over
    instead. A program that fails is a result too: the run says so. Ctrl-C ends the program on
    the board; what it left is brought home before the interruption goes on.

    Raises:
        ArmloadError: the run could not be started, or its results not be fetched.
        KeyboardInterrupt: after what is there was kept.
    """
    model = chosen_model(request, progress)
    plan = whole_plan(plan, model)  # one that does not suit the model is refused before any work
    with _reached(request, progress) as (reached, binary):
        board = reached.board
        same = asked_for(plan, binary, model)
        left = None if request.new else _left(reached.host, board, same, progress)
        if left is None:
            with leased(
                reached.host, board.workdir, progress, wait_s=request.wait_s, beside=reached.beside
            ) as lease:
                if lease.waited and not request.new:
                    left = _left(reached.host, board, same, progress)
                if left is None:
                    deployment = deploy(
                        reached.host, board, binary=binary, model=model, progress=progress
                    )
                    ready = Ready(board=board, binary=binary, model=model, deployment=deployment)
                    return _launched(reached, ready, plan, lease, progress)
        return _taken_over(reached, left, plan, progress)


@contextmanager
def _reached(request: Request, progress: Progress) -> Iterator[tuple[Reached, Binary]]:
    board = load_board(request.board)
    target = load_target(board.target)
    source = choose(request.source, ref=request.ref, progress=progress)
    with closing(Reached(board, progress)) as reached:
        # Minutes of compiling are no time to learn that the board does not answer.
        reached.host.run(":")
        with workshop(on=request.on, compiler=request.compiler, progress=progress) as where:
            (binary, *_) = build(target, source=source, workshop=where, progress=progress)
        yield reached, binary


def _left(host: Host, board: Board, same: str, progress: Progress) -> StoredRun | None:
    runs = list_runs(host, board.workdir)
    for cut in cut_runs(runs, same):
        try:
            run, _ = bring_home(host, board, cut.folder, progress, cut=cut.cut)
        except (BoardError, DataError, TransferError) as error:
            # What a restart has spoilt must not stand in the way of every further run.
            progress.say(f"{cut.id} of an interrupted command is left there: {error.message}")
            continue
        progress.say(f"{cut.id} of an interrupted command is kept: {run.exit.meaning}.")
    return left_run(runs, same, datetime.now(UTC))


def _taken_over(
    reached: Reached, left: StoredRun, plan: Plan, progress: Progress
) -> tuple[Run, Path]:
    how = "is under way" if left.state == "running" else "has ended"
    progress.say(
        f"The same run, left by an interrupted command, {how} on {reached.board.name}: "
        f"taking over {left.id}. (--new starts another.)"
    )
    with _stoppable(reached, left.folder, None, progress):
        cut = _watch(reached, left.folder, None, plan, progress)
        return bring_home(reached.host, reached.board, left.folder, progress, cut=cut)


def _launched(
    reached: Reached, ready: Ready, plan: Plan, lease: Lease, progress: Progress
) -> tuple[Run, Path]:
    host, board, deployment = reached.host, ready.board, ready.deployment
    # Copying fills the page cache and wakes the CPU: after it, the board is another.
    found = probe(host, board) if deployment.sent else deployment.found
    doubt = doubt_about_memory(plan, ready.model, board, found.conditions)
    if doubt:
        progress.say(doubt)
    job = new_job(
        plan,
        board=board,
        probe=found,
        binary=ready.binary,
        model=ready.model,
        on_board=deployment.program,
        model_on_board=deployment.model,
        launcher=host.launcher,
    )
    on_board = Layout(workdir=board.workdir).run(job.id)
    with _stoppable(reached, on_board, job, progress):
        lease.hand_to_run()
        try:
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
            )
        except BoardError:
            lease.take_back()
            raise
        cut = _watch(reached, on_board, job, plan, progress)
        return bring_home(reached.host, board, on_board, progress, job=job, cut=cut)


@contextmanager
def _stoppable(
    reached: Reached, on_board: PurePosixPath, job: Job | None, progress: Progress
) -> Iterator[None]:
    """Let Ctrl-C end a run on the board, and bring home what it has done."""
    try:
        yield
    except KeyboardInterrupt:
        progress.say(
            "Stopping the run on the board. Once more Ctrl-C leaves at once: what the run has done "
            f"can then be fetched with armload pull --board {reached.board.name}"
        )
        try:
            stop(reached.host, on_board)
            bring_home(reached.host, reached.board, on_board, progress, job=job)
            progress.say(f"What it had done is kept: armload show --run {on_board.name}")
        except ArmloadError as error:  # not begun yet, or out of reach: still an interruption
            progress.say(str(error))
        raise


def _watch(
    reached: Reached, on_board: PurePosixPath, job: Job | None, plan: Plan, progress: Progress
) -> Cut | None:
    """Follow a run to its end; return what cut it short."""
    board = reached.board
    with progress.step(f"Running on {board.name}", total=plan.n_predict, unit="tokens") as step:

        def grown(steps: int, text: str) -> None:
            step.update(steps, note=" ".join(text.split())[-40:])

        while True:
            try:
                follow(
                    reached.host,
                    on_board,
                    grown,
                    moved=reached.moved,
                    keep=runs_folder() / on_board.name / SEEN_FILE,
                )
                return None
            except CutShortError as error:
                progress.say(error.message)
                return error.cut
            except RunError:
                # A cut in the power may have taken the folder with it.
                if job is None or _boot_id(reached) == job.before.boot_id:
                    raise
                return "restart"
            except ConnectError:
                if not reached.moved():
                    raise
            reached.again()


def _boot_id(reached: Reached) -> str:
    return probe(reached.host, reached.board).conditions.boot_id
