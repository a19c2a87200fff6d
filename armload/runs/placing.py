"""A program and a model put on a board ahead of any run."""

from __future__ import annotations

from pathlib import PurePosixPath

from armload.boards.board import Board
from armload.boards.host import Host
from armload.boards.probe import Probe
from armload.build.binary import Binary
from armload.core.progress import Progress
from armload.core.values import Value, format_bytes
from armload.deploy.compatibility import check_fit
from armload.deploy.deployment import deploy, link_plainly
from armload.deploy.layout import Layout
from armload.deploy.retry import with_retries
from armload.engines.completion import PROGRAM, Completion
from armload.engines.llama_cpp import check_architecture
from armload.engines.model_program import program_and_model
from armload.engines.plan import Plan
from armload.models.model import Model
from armload.runs.footprint import checked_memory
from armload.runs.session import Session, leased_board


class Deployed(Value):
    """Where a program and a model lie on a board.

    Attributes:
        program, model: checked files.
        program_link, model_link: links to them without a checksum in the name, which the next
            deployment moves; none where the board's storage has no links.
        sent: something had to be copied.
    """

    program: PurePosixPath
    model: PurePosixPath
    program_link: PurePosixPath | None = None
    model_link: PurePosixPath | None = None
    sent: bool


def put_in_place(where: Session, model: Model, progress: Progress, *, verify: bool) -> Deployed:
    """Put llama-completion, which was built for a board, there with a model.

    Args:
        verify: read again what is there already.
    """
    with leased_board(where, progress):
        connection, binary = where.connection, where.binaries[PROGRAM]
        check_architecture(binary, model)
        shortest = Completion(Plan(prompt="x", n_predict=1), binary, model)
        checked_memory(where, shortest, where.found, progress)
        done = place(connection.host, connection.board, where.found, binary, model, progress)
        if verify:
            again = place(
                *(connection.host, connection.board, where.found, binary, model, progress),
                verify=True,
            )
            done = again.model_copy(update={"sent": again.sent or done.sent})
        return _linked(connection.host, connection.board, done, binary, model)


def _linked(host: Host, board: Board, done: Deployed, binary: Binary, model: Model) -> Deployed:
    """Give files names that a person would type."""
    layout = Layout(workdir=board.workdir)
    files = [
        item.remote for each in program_and_model(binary, model) for item in each.items(layout)
    ]
    linked = with_retries(lambda: link_plainly(host, layout, files))
    return done.model_copy(
        update={"program_link": linked.get(done.program), "model_link": linked.get(done.model)}
    )


def place(
    host: Host,
    board: Board,
    found: Probe,
    binary: Binary,
    model: Model,
    progress: Progress,
    *,
    verify: bool = False,
) -> Deployed:
    """Put a program and a model on a board that is ours for the time being.

    Raises:
        BoardError, BusyError, ConnectError, TransferError: as for ``deploy``.
    """
    check_fit(board, binary, found)
    memory_bytes = found.conditions.memory_total_bytes
    if model.size_bytes > memory_bytes:
        progress.say(
            f"{model.name} ({format_bytes(model.size_bytes)}) is larger than the memory of "
            f"{board.name} ({format_bytes(memory_bytes)}): it will run, but read from storage for "
            "every token."
        )
    payload = program_and_model(binary, model)
    done = deploy(host, board, payload, progress, verify=verify)
    layout = Layout(workdir=board.workdir)
    program, weights = (each.items(layout)[0].remote for each in payload)
    return Deployed(program=program, model=weights, sent=done.sent)
