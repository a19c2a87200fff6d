"""Starting a run that keeps the board's lease from then on."""

from __future__ import annotations

from pathlib import PurePosixPath

from armload.boards.host import Host
from armload.core.errors import BoardError
from armload.deploy import launch as on_board
from armload.deploy.lease import Lease
from armload.deploy.run_owner import RunOwner
from armload.engines.engine import Engine
from armload.engines.job import Job
from armload.runs.prepare import Prepared


def launch(
    host: Host,
    folder: PurePosixPath,
    engine: Engine,
    prepared: Prepared,
    job: Job,
    lease: Lease,
) -> None:
    """Start an engine on a board, detached from this command.

    Args:
        folder: of the run there; must be new.
        job: comes back with the run's files, whoever fetches them.
        lease: of the board; the run keeps it from now on.

    Raises:
        BoardError: it could not be started; the lease is ours as before.
        ConnectError: the board stayed away; whether the run was started shows in ``pull``.
    """
    site = prepared.site
    engine.place_secret(host, site.layout)
    lease.hand_to_run()
    try:
        on_board.launch(
            host,
            run_folder=folder,
            argv=job.command,
            environment=job.environment,
            trace=True,
            time_limit_s=engine.time_limit_s,
            job=job.model_dump_json().encode(),
            mark=RunOwner.of_this_process(job.fingerprint).word,
            lease=lease,
            uses=[
                *(helper.parent for helper in site.helpers.values()),
                *(each.folder(site.layout) for each in engine.payload),
            ],
            beforehand=prepared.beforehand,
            program=engine.program(site),
            upkeep=engine.upkeep(site.layout),
        )
    except BoardError:
        lease.take_back()
        raise
