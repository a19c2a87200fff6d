"""Measuring once per boot what a board's memory and storage give, while nobody else uses them."""

from __future__ import annotations

from pathlib import PurePosixPath

from armload.boards.board import Board
from armload.boards.host import Host
from armload.boards.probe import Probe
from armload.boards.rates import Rates, read_rates
from armload.build.helper import RATES
from armload.core.errors import ArmloadError, ConnectError
from armload.core.progress import Progress
from armload.core.shell import render
from armload.deploy.layout import Layout
from armload.deploy.own import own_program


def measured_rates(
    host: Host,
    board: Board,
    found: Probe,
    progress: Progress,
    *,
    file: PurePosixPath | None = None,
) -> Rates:
    """Return what a board gives, after measuring what was not measured in its present boot.

    What was measured while other programs were busy counts only until the next time. It takes a
    second and a half at most. What cannot be measured is left out: it is no reason to give up a
    run.

    Args:
        host: the board.
        board: what its file says.
        found: what it said of itself, with what was measured before.
        progress: where it is shown.
        file: what the storage is measured on; none for any model that lies there.

    Raises:
        ConnectError: the board does not answer.
    """
    known = found.rates
    memory, storage = not known.memory_is_settled, not known.storage_is_settled
    if not memory and not storage:
        return known
    try:
        program = own_program(host, Layout(workdir=board.workdir), RATES, found, progress)
        if program is None:
            return known
        values = {
            "workdir": board.workdir,
            "program": program,
            "threads": found.cores if memory else 0,
            "storage": storage,
            "file": file,
        }
        with progress.step(f"Measuring memory and storage of {board.name}"):
            lines = host.run(render("rates.sh.j2", values)).text.splitlines()
    except ConnectError:
        raise
    except ArmloadError as error:
        progress.say(f"{board.name}: its memory and storage are not measured: {error.message}")
        return known
    rates = known.better_of(read_rates(lines))
    too_low = (
        rates.memory_bytes_per_s and not rates.memory_is_settled,
        rates.storage_read_bytes_per_s and not rates.storage_is_settled,
    )
    if any(too_low):
        progress.say(
            f"Other programs were busy on {board.name} while its memory and storage were measured: "
            "they may give more, and are measured again the next time."
        )
    return rates
