"""Starting a program on a board so that it outlives the line that started it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import PurePosixPath

from armload.boards.host import Host
from armload.core.errors import BoardError
from armload.core.shell import render

JOB_MARK = b"#job "
"""Begins the last line of a run's script, a comment that holds the job."""


def launch(
    host: Host,
    *,
    run_folder: PurePosixPath,
    argv: Sequence[str],
    trace: bool,
    time_limit_s: float,
    job: bytes,
) -> None:
    """Start a program, detached; its files appear in ``run_folder``, which must be new.

    Args:
        host: the board.
        run_folder: becomes the program's working folder.
        argv: the program and its arguments, with the host's launcher before them where it
            has one.
        trace: let our library write ``trace.jsonl`` there.
        time_limit_s: the board itself ends the program after that long, give or take a second.
        job: JSON that comes back as ``job.json`` with the run's files, whoever fetches them.

    Raises:
        ConnectError: the line broke; whether the program was started shows in the list of runs.
        BoardError: the folder exists or cannot be made.
    """
    script = render(
        "run.sh.j2",
        {
            "folder": run_folder,
            "argv": list(argv),
            "trace": trace,
            "time_limit_s": math.ceil(time_limit_s),
        },
    )
    command = render("launch.sh.j2", {"folder": run_folder, "runs": run_folder.parent})
    done = host.run(command, stdin=script.encode() + JOB_MARK + b" ".join(job.splitlines()) + b"\n")
    if done.status != 0:
        reason = done.stderr.decode("utf-8", "replace").strip()
        raise BoardError(f"{host.name}: the run cannot be started in {run_folder}: {reason}.")
