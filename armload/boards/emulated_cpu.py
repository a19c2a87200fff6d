"""The CPU that programs see under an emulator, where the board shows the laptop's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from armload.boards.host import Host
from armload.build.helper import CPU_FEATURES, helper
from armload.core.progress import Progress
from armload.core.shell import join

if TYPE_CHECKING:
    from armload.boards.probe import Probe


def as_programs_see_it(host: Host, found: Probe, progress: Progress) -> Probe:
    """Return a probe with the machine and the CPU features that programs meet on a host.

    They are those that were found, unless the host has a launcher: then a program of ours asks
    under it. The shell of such a board is the laptop's own, so the program lies there already.
    Where it cannot be run, nothing is known: no features.

    Raises:
        ConnectError: the line broke.
        BuildError, MissingToolError: the program cannot be compiled.
    """
    if not host.launcher:
        return found
    done = host.run(join([*host.launcher, helper(CPU_FEATURES, progress).path.resolve()]))
    names = tuple(done.text.split())
    if done.status != 0 or "fp" not in names:
        return found.model_copy(update={"cpu_features": ()})
    return found.model_copy(update={"machine": "aarch64", "cpu_features": names})
