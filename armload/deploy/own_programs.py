"""Armload's own small programs on a board, compiled and put there when something needs them."""

from __future__ import annotations

from functools import partial
from pathlib import PurePosixPath

from armload.boards.host import Host
from armload.boards.probe import Probe
from armload.build.helper import ARCHITECTURES, SHA256, Helper, helper
from armload.core.errors import BoardError
from armload.core.progress import Progress, Within
from armload.core.shell import join
from armload.deploy.claims import need_board
from armload.deploy.layout import Layout
from armload.deploy.retry import with_retries
from armload.deploy.transfer import deliver
from armload.deploy.upload import Upload


def own_program(
    host: Host, layout: Layout, name: str, found: Probe, progress: Progress
) -> tuple[str, ...] | None:
    """Return the words that start a program of ours; none where it cannot run.

    It is put on the board first. Under a launcher the shell is this machine's own, so the program
    lies there already, and runs as all programs do that are built for the board.

    Args:
        found: the board, as programs see it.

    Raises:
        ConnectError: the board stayed away.
    """
    if found.machine not in ARCHITECTURES:
        return None
    ours = helper(name, progress, architecture=found.machine)
    if host.launcher:
        return (*host.launcher, str(ours.path.resolve()))
    return (str(put_helper(host, layout, ours, progress)),)


def program_of_the_shell(
    host: Host,
    layout: Layout,
    name: str,
    machine: str,
    progress: Progress,
    *,
    with_tls: bool = False,
) -> PurePosixPath:
    """Put a program of ours on a board, for its shell to start, and return where it lies.

    Under a launcher, too: it is then of the shell's own kind of machine, and starts the launcher.

    Args:
        name: as in ``toolchains/board/``.
        machine: ``uname -m`` of the shell.
        with_tls: with the TLS library.
    """
    if machine not in ARCHITECTURES:
        raise BoardError(
            f"{host.name}: its kernel is {machine}, but armload's program {name} runs on "
            f"{' and '.join(ARCHITECTURES)} only."
        )
    ours = helper(name, progress, architecture=machine, with_tls=with_tls)
    return put_helper(host, layout, ours, progress)


def checksum_program(
    host: Host, layout: Layout, found: Probe, progress: Progress
) -> PurePosixPath | None:
    """Put our checksum program on a board, and return where it lies; none where it cannot run."""
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


def put_helper(host: Host, layout: Layout, ours: Helper, progress: Progress) -> PurePosixPath:
    """Put a program of ours on a board, and return where it lies."""
    remote = layout.program(ours.sha256, ours.name)
    upload = Upload(local=ours.path, remote=remote, sha256=ours.sha256, executable=True)
    still_ours = partial(need_board, host, layout.workdir)
    # A person did not ask for the program, but for what needs it.
    with progress.step(f"Preparing {host.name}", total=upload.size_bytes, unit="B") as step:
        deliver(host, layout, upload, None, Within(progress, step), still_ours=still_ours)
    return remote
