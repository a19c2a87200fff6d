"""The heartbeat of a service on a board: it keeps the service running, and returns its state."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Literal, get_args

from armload.boards.host import Host
from armload.core.errors import TransferError
from armload.core.shell import join, render
from armload.core.values import Value, whole_number
from armload.deploy.exit_record import Cut

PATIENCE_S = 25
"""Without a heartbeat for so long a service ends, unless it was detached. A dropped connection must
not last as long."""

ENDS_WITHIN_S = PATIENCE_S + 15
"""So long after the last heartbeat it has ended, killed where it did not end when it was asked."""

Condition = Literal["running", "ended", "restart", "lost", "gone"]
"""How a service is; ``restart``: of the board; ``lost``: its script was killed; ``gone``: no such
run lies there."""


class ServiceState(Value):
    """What a service's run folder says.

    Attributes:
        condition: how it is.
        is_attended: it ends when the heartbeat stops.
        port: that it listens on, as noted by ``note_port``; none before.
        resident_bytes: the most memory that it has had, as the board saw it once a second.
        log: what it has written to standard error since.
        log_bytes: how long that is by now.
    """

    condition: Condition
    is_attended: bool = False
    port: int | None = None
    resident_bytes: int = 0
    log: bytes = b""
    log_bytes: int = 0

    @property
    def cut(self) -> Cut | None:
        """What ended it, where it may have left no exit status."""
        if self.condition in ("restart", "gone"):
            return "restart"
        return "lost" if self.condition == "lost" else None


def heartbeat(
    host: Host,
    run_folder: PurePosixPath,
    *,
    log_from_bytes: int = 0,
    look_only: bool = False,
    detach: bool = False,
) -> ServiceState:
    """Send one beat, and return how the service is.

    Args:
        log_from_bytes: how much of its log is known; a log that was shortened is sent whole.
        look_only: ask without keeping it running.
        detach: it needs no heartbeat from now on.
    """
    values = {
        "folder": run_folder,
        "log_from_bytes": log_from_bytes,
        "look_only": look_only,
        "detach": detach,
    }
    done = host.run(render("run/heartbeat.sh.j2", values))
    first, _, log = done.stdout.partition(b"\n")
    words = first.decode("ascii", "replace").split()
    for condition in get_args(Condition):
        if words == [condition]:
            return ServiceState(condition=condition)
        numbers = [number for word in words[2:] if (number := whole_number(word)) is not None]
        if words[:1] == [condition] and len(words) == 5 and len(numbers) == 3:
            port, kib, size_bytes = numbers
            return ServiceState(
                condition=condition,
                is_attended=words[1] == "attended",
                port=port or None,
                resident_bytes=kib * 1024,
                log=log,
                log_bytes=size_bytes,
            )
    raise TransferError(f"{host.name}: cannot parse the state of {run_folder}: {first[:200]!r}.")


def note_port(host: Host, run_folder: PurePosixPath, port: int) -> None:
    """Keep the port that a service listens on beside its files: its log does not last."""
    host.run(f"echo {port:d} >{join([run_folder / 'port'])}")
