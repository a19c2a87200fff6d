"""The one way through: from a board's and a model's name to a run that is kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from armload.bench import store
from armload.bench.assemble import assemble, read_job
from armload.bench.engine import context_tokens
from armload.bench.job import FILE_NAME, new_job
from armload.bench.plan import Plan
from armload.bench.run import Exit, Job, Memory, Run
from armload.boards.board import Board, load_board
from armload.boards.conditions import Conditions
from armload.boards.connect import connect
from armload.boards.host import Host
from armload.boards.probe import probe
from armload.build.binary import Binary
from armload.build.builder import build
from armload.build.source import choose
from armload.build.target import load_target
from armload.core.errors import ArmloadError, ConnectError, RunError, TransferError
from armload.core.files import write_whole
from armload.core.progress import Progress
from armload.core.values import Value
from armload.core.workspace import runs_folder
from armload.deploy.collect import StoredRun, collect, list_runs, peak_memory_bytes
from armload.deploy.deployment import Deployment, deploy
from armload.deploy.ending import explain
from armload.deploy.follow import follow, stop
from armload.deploy.launch import launch
from armload.deploy.layout import Layout
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
    """

    board: str
    model: str
    source: str = ""
    ref: str = ""


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

    Yields the live connection with what lies at its other end.

    Raises:
        ArmloadError: any of its kinds; whatever was done stays done.
    """
    board = load_board(request.board)
    target = load_target(board.target)
    source = choose(request.source, ref=request.ref, progress=progress)
    host = connect(board, progress)
    try:
        # Minutes of compiling are no time to learn that the board does not answer.
        host.run(":")
        (binary, *_) = build(target, source=source, progress=progress)
        deployment = deploy(host, board, binary=binary, model=model, progress=progress)
        yield host, Ready(board=board, binary=binary, model=model, deployment=deployment)
    finally:
        host.close()


def bench(request: Request, plan: Plan, progress: Progress) -> tuple[Run, Path]:
    """Run a plan on a board and keep what comes back; return it with its folder.

    A program that fails is a result too: the run says so. Ctrl-C ends the program on the
    board; what it left is brought home before the interruption goes on.

    Raises:
        ArmloadError: the run could not be started, or its results not be fetched.
        KeyboardInterrupt: after what is there was kept.
    """
    model = chosen_model(request, progress)
    context_tokens(plan, model)  # a plan that does not suit the model is refused before any work
    with prepared(request, model, progress) as (host, ready):
        # Copying fills the page cache and wakes the CPU: after it, the board is another.
        found = probe(host, ready.board) if ready.deployment.sent else ready.deployment.found
        job = new_job(
            plan,
            board=ready.board,
            probe=found,
            binary=ready.binary,
            model=ready.model,
            on_board=ready.deployment.program,
            model_on_board=ready.deployment.model,
            launcher=host.launcher,
        )
        on_board = Layout(workdir=ready.board.workdir).run(job.id)
        try:
            launch(
                host,
                run_folder=on_board,
                argv=job.command,
                trace=True,
                time_limit_s=plan.time_limit_s,
                job=job.model_dump_json().encode(),
            )
            _watch(host, on_board, plan, progress)
        except KeyboardInterrupt:
            progress.say("Stopping the run on the board; once more Ctrl-C leaves it running.")
            try:
                stop(host, on_board)
                _bring_home(host, ready.board, on_board, job)
                progress.say(f"What it had done is kept: armload show --run {job.id}")
            except ArmloadError as error:  # not begun yet, or out of reach: still an interruption
                progress.say(str(error))
            raise
        except RunError as error:
            progress.say(error.message)
        return _bring_home(host, ready.board, on_board, job)


def pull(board: Board, progress: Progress) -> list[Run]:
    """Bring home every run on a board that has ended and is not here yet, or not readable.

    A run that still goes on, and one that cannot be understood, is named and left alone.

    Raises:
        ConnectError: the board does not answer.
    """
    host = connect(board, progress)
    try:
        runs = []
        for stored in list_runs(host, board.workdir):
            if _is_here(runs_folder() / stored.id):
                continue
            if stored.state == "running":
                progress.say(f"{stored.id} still runs on {board.name}.")
                continue
            run = _pull_one(host, stored, progress)
            if run is not None:
                runs.append(run)
        return runs
    finally:
        host.close()


def _is_here(folder: Path) -> bool:
    try:
        store.load(folder)
    except ArmloadError:
        return False
    return True


def _pull_one(host: Host, stored: StoredRun, progress: Progress) -> Run | None:
    folder = runs_folder() / stored.id
    try:
        collect(host, stored.folder, folder)
        return _keep(read_job(folder), folder, after=None)
    except ConnectError:
        raise
    except ArmloadError as error:
        progress.say(f"{stored.id} cannot be brought home: {error.message}")
        return None


def _watch(host: Host, on_board: PurePosixPath, plan: Plan, progress: Progress) -> None:
    label = f"Running on {host.name}"
    with progress.step(label, total=plan.n_predict, unit="tokens") as step:

        def grown(steps: int, text: str) -> None:
            step.update(steps, note=" ".join(text.split())[-40:])

        follow(host, on_board, grown)


def _bring_home(host: Host, board: Board, on_board: PurePosixPath, job: Job) -> tuple[Run, Path]:
    folder = runs_folder() / job.id
    try:
        # The job is known here even if the board lost it.
        write_whole(folder / FILE_NAME, job.model_dump_json(indent=1).encode())
        collect(host, on_board, folder)
        return _keep(job, folder, after=_after(host, board)), folder
    except OSError as error:
        raise TransferError(
            f"{error.filename or folder}: {error.strerror or error}.",
            f"The run still lies on the board. Make room here, then: "
            f"armload pull --board {board.name}",
        ) from error


def _after(host: Host, board: Board) -> Conditions | None:
    try:
        return probe(host, board).conditions
    except ArmloadError:  # the run is done; what the board says now cannot undo it
        return None


def _keep(job: Job, folder: Path, *, after: Conditions | None) -> Run:
    peaks = peak_memory_bytes(folder)
    run = assemble(
        job,
        folder,
        ended=_ended(job, folder),
        memory=Memory(max_rss_bytes=peaks[0], max_vms_bytes=peaks[1]) if peaks else None,
        after=after,
    )
    store.save(run, folder)
    return run


def _ended(job: Job, folder: Path) -> Exit:
    lacking = [name for name in job.binary.features if name not in job.board.cpu_features]
    return Exit.model_validate(explain(folder, lacking=lacking).model_dump())
