"""A program and a model, in place on a board and fit to run there."""

from __future__ import annotations

from pathlib import PurePosixPath

from armload.boards.board import Board
from armload.boards.host import Host
from armload.boards.probe import Probe, parse_probe, probe_script
from armload.build.binary import Binary
from armload.core.errors import BoardError
from armload.core.progress import Progress
from armload.core.values import Value
from armload.deploy.layout import Layout
from armload.deploy.transfer import Item, deliver, parse_stored, stored_script
from armload.models.model import Model


class Deployment(Value):
    """Where a program and a model lie on a board.

    Attributes:
        program, model: checked files.
        sent: something had to be copied.
        found: what the board said of itself before that.
    """

    program: PurePosixPath
    model: PurePosixPath
    sent: bool
    found: Probe


def deploy(
    host: Host, board: Board, *, binary: Binary, model: Model, progress: Progress
) -> Deployment:
    """Put a program and a model on a board, after a check that it can run the program.

    Everything is asked in one round trip; when all is there already that was all.

    Raises:
        BoardError: not aarch64, a CPU feature is missing, no space, a folder that cannot be
            written or run from.
        ConnectError, TransferError: as for ``push``.
    """
    layout = Layout(workdir=board.workdir)
    items = (
        Item(
            local=binary.path,
            remote=layout.program(binary.sha256, binary.program),
            sha256=binary.sha256,
            executable=True,
        ),
        Item(
            local=model.path,
            remote=layout.model(model.sha256, model.name),
            sha256=model.sha256,
            executable=False,
        ),
    )
    said = host.run(probe_script(board) + stored_script(items)).stdout
    found = parse_probe(said, board.name)
    check_fit(board, binary, found, emulated=bool(host.launcher))
    stored = parse_stored(items, said)
    sent = [deliver(host, item, state, progress) for item, state in zip(items, stored, strict=True)]
    return Deployment(program=items[0].remote, model=items[1].remote, sent=any(sent), found=found)


def check_fit(board: Board, binary: Binary, found: Probe, *, emulated: bool) -> None:
    """Refuse a board that cannot run a program.

    Args:
        board: where it should run.
        binary: what should run.
        found: what the board says of itself.
        emulated: programs run under an emulator, whose CPU the board does not show.

    Raises:
        BoardError: says what is missing.
    """
    workdir = f"'workdir' in boards/{board.name}.yaml"
    if not found.workdir_writable:
        raise BoardError(
            f"{board.name}: {board.workdir} cannot be written.",
            f"Choose a folder that can, such as /data/local/tmp/armload, as {workdir}.",
        )
    if not found.workdir_executable:
        raise BoardError(
            f"{board.name}: programs in {board.workdir} may not be run (mounted noexec?).",
            f"Choose another folder as {workdir}.",
        )
    if emulated:
        return
    if found.machine != binary.architecture:
        raise BoardError(
            f"{board.name}: its kernel is {found.machine}, and {binary.program} built for "
            f"{binary.target} needs {binary.architecture}.",
            f"Give the board another target: 'target' in boards/{board.name}.yaml. A 32-bit kernel "
            "cannot run 64-bit programs, even on a 64-bit CPU.",
        )
    lacking = lacking_features(binary, found)
    if lacking:
        raise BoardError(
            f"{board.name}: its CPU lacks {', '.join(lacking)}, which {binary.program} built for "
            f"{binary.target} uses.",
            f"Give the board a target without {lacking[0]}: 'target' in boards/{board.name}.yaml.",
        )


def lacking_features(binary: Binary, found: Probe) -> tuple[str, ...]:
    """Return the CPU features that a program uses unasked and a board does not have."""
    used = (use.feature for use in binary.features if not use.guarded)
    return tuple(name for name in used if name not in found.cpu_features)
