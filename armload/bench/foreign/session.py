"""The way of a foreign program: from its files on the laptop to a run that is kept."""

from __future__ import annotations

import hashlib
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

from armload import __version__
from armload.bench.defaults import DEFAULT_TIME_LIMIT_S, DEFAULT_WAIT_S
from armload.bench.following import started, taken_over
from armload.bench.foreign.fit import check_program, check_wheel
from armload.bench.foreign.said import Reads
from armload.bench.foreign.words import Command, for_board
from armload.bench.job import board_record, new_id
from armload.bench.reached import Reached
from armload.bench.record import BinaryRecord, Job, ModelRecord, PutFile, Watched
from armload.bench.run import Run
from armload.bench.takeover import left_for
from armload.boards.board import Board, load_board
from armload.boards.probe import Probe, as_programs_see_it, parse_probe, probe, probe_script
from armload.build.helper import WATCH
from armload.build.inspection import Inspection
from armload.core.progress import Progress
from armload.core.values import Value
from armload.deploy.launch import launch
from armload.deploy.layout import Layout
from armload.deploy.lease import Lease, leased
from armload.deploy.mark import Mark
from armload.deploy.own import program_of_the_shell
from armload.deploy.patience import patiently
from armload.deploy.things import Thing, put, read_thing

PROGRAM_ID_FILE = "watched"
"""Holds the foreign program's process id; the run's script looks at that one's memory."""


class WatchRequest(Value):
    """What a person asks for.

    Attributes:
        board: a file in ``boards/``.
        words: the program and its arguments.
        put: files and folders on the laptop that it needs there.
        reads: whose output it prints.
        name: of the model; empty for the name of the largest thing put there beside the program.
        wheel_python: a Python on the board that must have MNN's wheel; empty for none.
        time_limit_s: the board itself ends it after that long.
        wait_s: how long to wait for a board that somebody else uses.
        new: start another run, even if an interrupted command left the same one on the board.
    """

    board: str
    words: tuple[str, ...]
    put: tuple[Path, ...] = ()
    reads: Reads = "text"
    name: str = ""
    wheel_python: str = ""
    time_limit_s: float = DEFAULT_TIME_LIMIT_S
    wait_s: float = DEFAULT_WAIT_S
    new: bool = False


def watch(request: WatchRequest, progress: Progress) -> tuple[Run, Path]:
    """Run a foreign program on a board under ``watch``; keep what comes back, and return it.

    What an interrupted command of this laptop left there of the same request is taken over
    instead. A program that fails is a result too: the run says so. Ctrl-C ends the program on
    the board; what it left is brought home before the interruption goes on.

    Raises:
        ArmloadError: the program could not be started, or its results not be fetched.
        KeyboardInterrupt: after what is there was kept.
    """
    board = load_board(request.board)
    layout = Layout(workdir=board.workdir)
    with closing(Reached(board, progress)) as reached:
        # Gigabytes of checksums are no time to learn that the board does not answer.
        reached.host.run(":")
        things = [read_thing(path, progress) for path in request.put]
        command = for_board(request.words, things, layout)
        same = _asked_for(request, things)
        left = None if request.new else left_for(reached, same, progress)
        if left is None:
            with leased(
                reached.host, board.workdir, progress, wait_s=request.wait_s, beside=reached.beside
            ) as lease:
                if lease.waited and not request.new:
                    left = left_for(reached, same, progress)
                if left is None:
                    return _launched(reached, request, same, command, things, lease, progress)
        return taken_over(reached, left, progress, unit="writes")


def _asked_for(request: WatchRequest, things: list[Thing]) -> str:
    parts = [*request.words, request.reads, request.name, *(thing.sha256 for thing in things)]
    return hashlib.sha256("\0".join(parts).encode(errors="replace")).hexdigest()[:16]


def _job(
    request: WatchRequest,
    same: str,
    command: Command,
    things: list[Thing],
    *,
    board: Board,
    found: Probe,
    watcher: PurePosixPath,
    launcher: tuple[str, ...],
    inspection: Inspection | None,
) -> Job:
    now = datetime.now(UTC)
    program = command.program
    called = program.name.name if program else PurePosixPath(command.words[0]).name
    model = _model(request, command, things)
    settings = ":".join(str(folder) for folder in command.library_folders)
    libraries = ("-e", f"LD_LIBRARY_PATH={settings}") if settings else ()
    return Job(
        id=new_id(now, board.name, model.name or called),
        asked_for=same,
        started_utc=now.isoformat(timespec="seconds"),
        armload=__version__,
        plan=None,
        watched=Watched(
            words=request.words,
            reads=request.reads,
            files=tuple(
                PutFile(name=str(part.name), sha256=part.sha256, size_bytes=part.size_bytes)
                for thing in things
                for part in thing.parts
            ),
            time_limit_s=request.time_limit_s,
        ),
        command=(
            str(watcher),
            "-p",
            PROGRAM_ID_FILE,
            *libraries,
            "--",
            *launcher,
            *command.words,
        ),
        board=board_record(board, found),
        binary=BinaryRecord(
            program=called,
            sha256=program.sha256 if program else "",
            size_bytes=program.size_bytes if program else None,
            features=tuple(use.feature for use in inspection.features if not use.guarded)
            if inspection
            else (),
        ),
        model=model,
        before=found.conditions,
    )


def _model(request: WatchRequest, command: Command, things: list[Thing]) -> ModelRecord:
    """Return the largest thing that is put there beside the program."""
    program = command.program.local if command.program else None
    others = [thing for thing in things if not program or not program.is_relative_to(thing.local)]
    if not others:
        return ModelRecord(name=request.name, sha256="", size_bytes=None)
    largest = max(others, key=lambda thing: thing.size_bytes)
    return ModelRecord(
        name=request.name or largest.name, sha256=largest.sha256, size_bytes=largest.size_bytes
    )


def _launched(
    reached: Reached,
    request: WatchRequest,
    same: str,
    command: Command,
    things: list[Thing],
    lease: Lease,
    progress: Progress,
) -> tuple[Run, Path]:
    host, board = reached.host, reached.board
    layout = Layout(workdir=board.workdir)
    # Under an emulator the shell is of another kind of machine than the programs.
    shown = parse_probe(patiently(lambda: host.run(probe_script(board))).stdout, board.name)
    found = patiently(lambda: as_programs_see_it(host, shown, progress))
    if request.wheel_python:
        patiently(lambda: check_wheel(host, request.wheel_python))
    inspection = patiently(lambda: check_program(host, board, found, command, things, progress))
    watcher = program_of_the_shell(host, layout, WATCH, shown.machine, progress)
    sent = put(host, layout, things, found, progress)
    job = _job(
        request,
        same,
        command,
        things,
        board=board,
        # Copying fills the page cache and wakes the CPU: after it, the board is another.
        found=patiently(lambda: probe(host, board)) if sent else found,
        watcher=watcher,
        launcher=host.launcher if inspection is not None else (),
        inspection=inspection,
    )
    on_board = layout.run(job.id)

    def start() -> None:
        launch(
            host,
            run_folder=on_board,
            argv=job.command,
            trace=True,
            time_limit_s=request.time_limit_s,
            job=job.model_dump_json().encode(),
            mark=Mark.of_this_process(job.asked_for).word,
            lease=lease,
            uses=[watcher.parent, *(thing.folder(layout) for thing in things)],
            program=command.words[0],
        )

    return started(start, reached, on_board, job, lease, progress, unit="writes")
