"""The CPU that programs see under an emulator, where the board shows this machine's own."""

from __future__ import annotations

from armload.boards.host import Host
from armload.build.helper import CPU_FEATURES, helper
from armload.core.progress import Progress
from armload.core.shell import join


def features_under_launcher(host: Host, progress: Progress) -> tuple[str, ...]:
    """Return the CPU features that programs meet under a host's launcher; none where unknown.

    A program of ours asks. The shell of such a board is this machine's own, so the program lies
    there already.

    Raises:
        ConnectError: the connection dropped.
        BuildError, MissingToolError: the program cannot be compiled.
    """
    done = host.run(join([*host.launcher, helper(CPU_FEATURES, progress).path.resolve()]))
    names = tuple(done.text.split())
    return names if done.status == 0 and "fp" in names else ()
