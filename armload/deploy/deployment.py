"""A program and a model, in place on a board and fit to run there."""

from __future__ import annotations

from pathlib import PurePosixPath

from armload.boards.board import Board, EmulatedReach
from armload.boards.host import Host
from armload.boards.probe import Probe, as_programs_see_it, parse_probe, probe_script
from armload.build.binary import Binary
from armload.build.helper import ARCHITECTURES, SHA256, helper
from armload.build.target import load_target
from armload.core.errors import ArmloadError, BoardError
from armload.core.progress import Progress
from armload.core.shell import join
from armload.core.values import Value, format_bytes
from armload.deploy.claims import need_board
from armload.deploy.item import Item, Stored, parse_stored, stored_script
from armload.deploy.layout import Layout
from armload.deploy.own import put_helper
from armload.deploy.patience import Patience, patiently
from armload.deploy.space import need_space
from armload.deploy.transfer import PATIENCE_S, deliver
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
    host: Host,
    board: Board,
    *,
    binary: Binary,
    model: Model,
    progress: Progress,
    verify: bool = False,
) -> Deployment:
    """Put a program and a model on a board, after a check that it can run the program.

    Everything is asked in one round trip; when all is there already that was all.

    Args:
        host: the board.
        board: what its file says.
        binary: the program.
        model: the model.
        progress: where it is shown.
        verify: read again what is there already, from the storage where that can be done.

    Raises:
        BoardError: not aarch64, a CPU feature is missing, no space, a folder that cannot be
            written or run from.
        BusyError: meanwhile somebody else has taken the board over.
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
    patience = Patience(PATIENCE_S)
    question = probe_script(board) + stored_script(items)
    said = patiently(lambda: host.run(question), patience).stdout
    found = as_programs_see_it(host, parse_probe(said, board.name), progress)
    check_fit(board, binary, found, emulated=bool(host.launcher))
    stored = [
        Stored(state="unchecked") if verify and state.state == "present" else state
        for state in parse_stored(items, said)
    ]
    sent = False
    if any(state.state != "present" for state in stored):
        _say_if_memory_is_small(board, model, found, progress)
        patiently(lambda: need_space(host, items, stored), patience)
        sums = helper_on_board(host, layout, found, progress)
        for item, state in zip(items, stored, strict=True):
            sent |= deliver(
                host,
                item,
                state,
                progress,
                helper=sums,
                cold=verify,
                still_ours=lambda: need_board(host, board.workdir),
            )
    return Deployment(program=items[0].remote, model=items[1].remote, sent=sent, found=found)


def helper_on_board(
    host: Host, layout: Layout, found: Probe, progress: Progress
) -> PurePosixPath | None:
    """Return our checksum program on a board, after putting it there; none where it cannot run.

    Raises:
        BuildError, MissingToolError: it cannot be compiled.
        BoardError, ConnectError, TransferError: as for ``push``.
    """
    if found.machine not in ARCHITECTURES or host.launcher:
        return None
    ours = helper(SHA256, progress, architecture=found.machine)
    remote = put_helper(host, layout, ours, progress)
    of_itself = patiently(lambda: host.run(join([remote, remote]))).text
    if of_itself != ours.sha256:
        progress.say(f"{host.name} cannot run armload's checksum program; its own tools do it.")
        return None
    return remote


def _say_if_memory_is_small(board: Board, model: Model, found: Probe, progress: Progress) -> None:
    memory_bytes = found.conditions.memory_total_bytes
    if model.size_bytes > memory_bytes:
        progress.say(
            f"{model.name} ({format_bytes(model.size_bytes)}) is larger than the memory of "
            f"{board.name} ({format_bytes(memory_bytes)}): it will run, and read its storage for "
            "every token."
        )


def check_fit(board: Board, binary: Binary, found: Probe, *, emulated: bool) -> None:
    """Refuse a board that cannot run a program.

    Args:
        board: where it should run.
        binary: what should run.
        found: what the board says of itself.
        emulated: programs run under an emulator; without features its CPU is not known.

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
    if emulated and not found.cpu_features:
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


def misfit_of_target(board: Board, found: Probe) -> str:
    """Say why programs for a board's target would not run there; nothing where they would."""
    try:
        target = load_target(board.target)
    except ArmloadError as error:
        return error.message
    if isinstance(board.reach, EmulatedReach) and not found.cpu_features:
        return ""
    if found.machine != target.architecture:
        return (
            f"Its kernel is {found.machine}, and programs for its target {target.name} need "
            f"{target.architecture}."
        )
    lacking = [name for name in target.features if name not in found.cpu_features]
    if lacking:
        return f"Its CPU lacks {', '.join(lacking)}, which its target {target.name} counts on."
    return ""
