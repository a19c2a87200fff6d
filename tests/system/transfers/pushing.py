"""Copies of one file to a board, over lines that may break."""

from __future__ import annotations

from collections.abc import Container, Iterator
from contextlib import closing, contextmanager
from pathlib import Path, PurePosixPath

from armload.boards.board import SshAddress
from armload.boards.ssh import SshHost
from armload.core.progress import Progress, Silent
from armload.deploy.layout import OWN_FOLDER, Layout
from armload.deploy.transfer import RETRY_FOR_S, push
from armload.models.model import cached_sha256
from tests.faults import Relay

SIZE = 40_000_000


def pushed(
    host: SshHost,
    local: Path,
    remote: Path,
    progress: Progress | None = None,
    *,
    with_helper: PurePosixPath | None = None,
    retry_for_s: float = RETRY_FOR_S,
    sha256: str = "",
) -> bool:
    """Push a file under the sum that it has now, or under another."""
    return push(
        host,
        Layout(workdir=PurePosixPath(remote.parents[2])),
        local,
        PurePosixPath(remote),
        sha256=sha256 or cached_sha256(local, Silent()),
        executable=False,
        progress=progress or Silent(),
        helper=with_helper,
        retry_for_s=retry_for_s,
    )


def through(server: SshAddress, relay: Relay) -> SshAddress:
    return server.model_copy(update={"port": relay.port})


@contextmanager
def over_relay(
    server: SshAddress, *, stalls_after_bytes: int | None = None, refuses: Container[int] = ()
) -> Iterator[tuple[SshHost, Relay]]:
    assert server.port is not None
    relay = Relay(server.port, stalls_after_bytes=stalls_after_bytes, refuses=refuses)
    with closing(relay), closing(SshHost(through(server, relay), "my-board")) as host:
        yield host, relay


def left_over(remote: Path) -> set[str]:
    files = {path.name for path in remote.parent.rglob("*") if path.is_file()}
    return files - {remote.name, f"{remote.name}.sha256"}


def part_of(remote: Path) -> Path:
    return remote.parent / OWN_FOLDER / f"{remote.name}.part"
