"""Files in place on a board, each verified there, and programs of ours ready for its shell."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import PurePosixPath

from armload.boards.board import Board, LocalReach
from armload.boards.host import Host
from armload.boards.probe import Probe, as_programs_see_it, parse_probe, probe_script
from armload.build.binary import Binary, FeatureUse
from armload.build.helper import ARCHITECTURES, SHA256, Helper, helper
from armload.build.target import load_target
from armload.core.errors import ArmloadError, BoardError
from armload.core.progress import Progress
from armload.core.shell import join
from armload.core.values import Value
from armload.core.workspace import data_names
from armload.deploy.claims import need_board
from armload.deploy.layout import Layout
from armload.deploy.payload import Payload
from armload.deploy.retry import Retry, with_retries
from armload.deploy.space import need_memory, need_space
from armload.deploy.transfer import RETRY_FOR_S, deliver
from armload.deploy.upload import Stored, Upload, parse_stored, stored_script


def own_program(
    host: Host, layout: Layout, name: str, found: Probe, progress: Progress
) -> tuple[str, ...] | None:
    """Return the words that start a program of ours; none where it cannot run.

    It is put on the board first. Under a launcher the shell is this machine's own, so the program
    lies there already, and runs as all programs do that are built for the board.

    Args:
        found: the board, as programs see it.

    Raises:
        BuildError, MissingToolError: it cannot be compiled.
        BoardError, ConnectError, TransferError: as for ``push``.
    """
    if found.machine not in ARCHITECTURES:
        return None
    ours = helper(name, progress, architecture=found.machine)
    if host.launcher:
        return (*host.launcher, str(ours.path.resolve()))
    return (str(put_helper(host, layout, ours, progress)),)


def program_of_the_shell(
    host: Host, layout: Layout, name: str, machine: str, progress: Progress
) -> PurePosixPath:
    """Put a program of ours on a board, for its shell to start, and return where it lies.

    Under a launcher, too: it is then of the shell's own kind of machine, and starts the launcher.

    Args:
        name: as in ``toolchains/board/``.
        machine: ``uname -m`` of the shell.

    Raises:
        BuildError, MissingToolError: it cannot be compiled.
        BoardError, ConnectError, TransferError: as for ``push``; or there is none for the machine.
    """
    if machine not in ARCHITECTURES:
        raise BoardError(
            f"{host.name}: its kernel is {machine}, but armload's program {name} runs on "
            f"{' and '.join(ARCHITECTURES)} only."
        )
    return put_helper(host, layout, helper(name, progress, architecture=machine), progress)


def put_helper(host: Host, layout: Layout, ours: Helper, progress: Progress) -> PurePosixPath:
    """Put a program of ours on a board, and return where it lies.

    Raises:
        BusyError: meanwhile somebody else has taken the board over.
        BoardError, ConnectError, TransferError: as for ``push``.
    """
    remote = layout.program(ours.sha256, ours.name)
    upload = Upload(local=ours.path, remote=remote, sha256=ours.sha256, executable=True)
    still_ours = partial(need_board, host, layout.workdir)
    deliver(host, upload, None, progress, still_ours=still_ours)
    return remote


_ASKED_AT_ONCE = 100


class Deployment(Value):
    """What was found and done on a board.

    Attributes:
        found: what the board reported before anything was copied, as programs see it.
        shell_machine: ``uname -m`` of its shell, which under an emulator is another one.
        sent: something had to be copied.
    """

    found: Probe
    shell_machine: str
    sent: bool


def deploy(
    host: Host,
    board: Board,
    payload: Sequence[Payload],
    progress: Progress,
    *,
    verify: bool = False,
) -> Deployment:
    """Put files on a board, each verified there.

    Everything is asked in one round trip; when all is there already that was all.

    Args:
        verify: read again what is there already, from the storage where that can be done.

    Raises:
        BoardError: no space, a folder that cannot be written or run from.
        BusyError: meanwhile somebody else has taken the board over.
        ConnectError, TransferError: as for ``push``.
    """
    layout = Layout(workdir=board.workdir)
    items = [item for each in payload for item in each.items(layout)]
    retry = Retry(RETRY_FOR_S)
    question = probe_script(board) + stored_script(items[:_ASKED_AT_ONCE])
    done = with_retries(lambda: host.run(question), retry)
    shown = parse_probe(done.stdout, board.name, done.stderr, sensors=board.sensors)
    found = with_retries(lambda: as_programs_see_it(host, shown, progress), retry)
    check_folder(board, found)
    stored = list(parse_stored(items[:_ASKED_AT_ONCE], done.stdout))
    for first in range(_ASKED_AT_ONCE, len(items), _ASKED_AT_ONCE):
        some = items[first : first + _ASKED_AT_ONCE]
        stored += parse_stored(some, with_retries(partial(host.run, stored_script(some))).stdout)
    if verify:
        stored = [Stored(state="unchecked") if each.state == "present" else each for each in stored]
    sent = False
    lacking = [pair for pair in zip(items, stored, strict=True) if pair[1].state != "present"]
    if lacking:
        need_memory(board, items, stored, found.conditions, progress)
        with_retries(lambda: need_space(host, items, stored), retry)
        sums = helper_on_board(host, layout, found, progress)
        for item, state in lacking:
            sent |= deliver(
                host,
                item,
                state,
                progress,
                helper=sums,
                cold=verify,
                still_ours=lambda: need_board(host, board.workdir),
            )
    return Deployment(found=found, shell_machine=shown.machine, sent=sent)


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
    of_itself = with_retries(lambda: host.run(join([remote, remote]))).text
    if of_itself != ours.sha256:
        progress.say(
            f"{host.name} cannot run armload's checksum program; using the board's own tools."
        )
        return None
    return remote


def check_fit(board: Board, binary: Binary, found: Probe, *, emulated: bool) -> None:
    """Refuse a board that cannot run a program.

    Args:
        emulated: programs run under an emulator; without features its CPU is not known.

    Raises:
        BoardError: says what is missing.
    """
    if emulated and not found.cpu_features:
        return
    if found.machine != binary.architecture:
        raise BoardError(
            f"{board.name}: its kernel is {found.machine}, and {binary.program} built for "
            f"{binary.target} needs {binary.architecture}.",
            f"Change the board's target: 'target' in boards/{board.name}.yaml. A 32-bit kernel "
            "cannot run 64-bit programs, even on a 64-bit CPU.",
        )
    lacking = lacking_features(binary.features, found)
    if lacking:
        raise BoardError(
            f"{board.name}: its CPU lacks {', '.join(lacking)}, which {binary.program} built for "
            f"{binary.target} uses.",
            f"Choose a target without {lacking[0]}: 'target' in boards/{board.name}.yaml.",
        )


def check_folder(board: Board, found: Probe) -> None:
    """Refuse a work folder that cannot be used.

    Raises:
        BoardError: it is not writable, or programs in it cannot be executed; says why.
    """
    if found.workdir_writable and found.workdir_executable:
        return
    obstacle = found.workdir_obstacle
    lack = "programs in it cannot be executed" if found.workdir_writable else "it is not writable"
    raise BoardError(
        f"{board.name}: {board.workdir}: {lack}{f': {obstacle.words}' if obstacle else ''}.",
        obstacle.remedy(board.name)
        if obstacle
        else f"Choose another folder as 'workdir' in boards/{board.name}.yaml, such as "
        "/data/local/tmp/armload.",
    )


def lacking_features(uses: Iterable[FeatureUse], found: Probe) -> tuple[str, ...]:
    """Return the CPU features that a program uses unasked and a board does not have."""
    used = (use.feature for use in uses if not use.guarded)
    return tuple(name for name in used if name not in found.cpu_features)


def targets_that_suit(board: Board, found: Probe) -> list[str]:
    """Return the targets whose programs would run on a board, the best first.

    Those for a CPU that it has come first, and then those with most features.
    """
    suiting = [
        load_target(name)
        for name in data_names("toolchains")
        if not target_mismatch(board.model_copy(update={"target": name}), found)
    ]
    kinds = {cluster.name.lower() for cluster in found.clusters}
    suiting.sort(key=lambda each: (each.cpu not in kinds, -len(each.features)))
    return [each.name for each in suiting]


def target_mismatch(board: Board, found: Probe) -> str:
    """Say why programs for a board's target would not run there; nothing where they would."""
    try:
        target = load_target(board.target)
    except ArmloadError as error:
        return error.message
    launched = isinstance(board.reach, LocalReach) and bool(board.reach.launcher)
    if launched and not found.cpu_features:
        return ""
    if found.machine != target.architecture:
        return (
            f"The kernel is {found.machine}, but programs for target {target.name} need "
            f"{target.architecture}."
        )
    lacking = [name for name in target.features if name not in found.cpu_features]
    if lacking:
        return f"The CPU lacks {', '.join(lacking)}, which target {target.name} requires."
    return ""
