"""Programs of ours on a board, ready to be started by its shell."""

from __future__ import annotations

from armload.boards.host import Host
from armload.boards.probe import Probe
from armload.build.helper import ARCHITECTURES, helper
from armload.core.progress import Progress
from armload.deploy.layout import Layout
from armload.deploy.transfer import push


def own_program(
    host: Host, layout: Layout, name: str, found: Probe, progress: Progress
) -> tuple[str, ...] | None:
    """Return the words that start a program of ours; none where it cannot run.

    It is put on the board first. Under a launcher the shell is the laptop's own, so the program
    lies there already, and runs as all programs do that are built for the board.

    Raises:
        BuildError, MissingToolError: it cannot be compiled.
        BoardError, ConnectError, TransferError: as for ``push``.
    """
    if host.launcher:
        return (*host.launcher, str(helper(name, progress).path.resolve()))
    if found.machine not in ARCHITECTURES:
        return None
    ours = helper(name, progress, architecture=found.machine)
    remote = layout.program(ours.sha256, ours.name)
    push(host, ours.path, remote, sha256=ours.sha256, executable=True, progress=progress)
    return (str(remote),)
