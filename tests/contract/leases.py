"""Claims on a board, as others put them up and as this machine has them."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path, PurePosixPath

from armload.boards.host import Host
from armload.boards.virtual.process import Started
from armload.core.progress import Progress, Silent
from armload.deploy.holder import LeaseHolder
from armload.deploy.layout import Layout
from armload.deploy.lease import Lease, leased

BOOT_ID = Path("/proc/sys/kernel/random/boot_id").read_text().strip()

SOMEBODY = LeaseHolder(
    user="ann", workstation="thinkpad-0a1b", process=Started(pid=os.getpid(), start_mark="1")
)


def taken(
    host: Host,
    workdir: PurePosixPath,
    wait_s: float = 0,
    progress: Progress | None = None,
) -> contextlib.AbstractContextManager[Lease]:
    def never() -> Host:
        raise AssertionError("short leases need no other line")

    return leased(host, workdir, progress or Silent(), wait_s=wait_s, beside=never)


def uptime_s() -> int:
    return int(Path("/proc/uptime").read_text().split(".")[0])


def put_up(
    workdir: PurePosixPath,
    owner: LeaseHolder,
    *,
    token: str = "other",
    boot: str = BOOT_ID,
    lasts_s: int = 50,
    run: str = "",
) -> Path:
    claim = Path(Layout(workdir=workdir).lease) / f"{token}.{boot}.{uptime_s() + lasts_s}"
    claim.parent.mkdir(parents=True, exist_ok=True)
    claim.write_text(f"{owner.model_dump_json()}\n{uptime_s() - 200}\n{run}\n")
    return claim
