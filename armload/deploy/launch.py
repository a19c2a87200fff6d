"""Starting a program on a board so that it outlives the line that started it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import PurePosixPath

from armload.boards.host import Host
from armload.core.errors import BoardError
from armload.core.shell import render


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
        job: is kept there as ``job.json``, so that the run explains itself to whoever fetches it.

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
    folder = {"folder": run_folder, "runs": run_folder.parent}
    for command, stdin in (
        (render("run-folder.sh.j2", folder), job),
        (render("launch.sh.j2", folder), script.encode()),
    ):
        done = host.run(command, stdin=stdin)
        if done.status != 0:
            reason = done.stderr.decode("utf-8", "replace").strip()
            raise BoardError(f"{host.name}: the run cannot be started in {run_folder}: {reason}.")
