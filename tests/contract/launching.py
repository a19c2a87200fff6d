"""Programs that are started on a host, followed to their end, and brought home."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from armload.boards.host import Host
from armload.core.shell import quote
from armload.deploy.collect import collect
from armload.deploy.follow import ProgressUpdate, follow
from armload.deploy.launch import BoardSetup, ServiceOptions, launch
from armload.deploy.layout import Layout
from armload.deploy.lease import RENEW_EVERY_S, Lease

JOB = b'{"id": "run"}'


def nothing(now: ProgressUpdate) -> None:
    """Follow a run without looking."""
    del now


def waiting_for(gate: Path) -> tuple[str, ...]:
    """Return a program that ends when there is a file."""
    return "sh", "-c", f"until [ -e {quote(str(gate))} ]; do sleep 0.1; done"


def launched(
    host: Host,
    workdir: PurePosixPath,
    *argv: str,
    name: str = "run",
    limit_s: float = 60,
    setup: BoardSetup | None = None,
    lease: Lease | None = None,
    renew_every_s: float = RENEW_EVERY_S,
    service_options: ServiceOptions | None = None,
) -> PurePosixPath:
    """Start a program; return its folder."""
    folder = Layout(workdir=workdir).run(name)
    if lease is not None:
        lease.hand_to_run()
    launch(
        host,
        run_folder=folder,
        argv=argv,
        trace=True,
        time_limit_s=limit_s,
        job=JOB,
        lease=lease,
        renew_every_s=renew_every_s,
        setup=setup,
        service_options=service_options,
    )
    return folder


def run_to_end(
    host: Host,
    workdir: PurePosixPath,
    local: Path,
    *argv: str,
    limit_s: float = 60,
    setup: BoardSetup | None = None,
) -> int:
    """Bring home what a program left; return its status."""
    folder = launched(host, workdir, *argv, name=local.name, limit_s=limit_s, setup=setup)
    status = follow(host, folder, nothing)
    collect(host, folder, local)
    return status


def ran(
    host: Host,
    workdir: PurePosixPath,
    local: Path,
    *argv: str,
    setup: BoardSetup | None = None,
) -> Path:
    """Bring home what a program left that did what it should."""
    assert run_to_end(host, workdir, local, *argv, setup=setup) == 0
    return local
