"""Deploy, prepare, launch: how any program gets under way on one board."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import PurePosixPath

from armload.core.progress import Progress
from armload.deploy.deployment import deploy
from armload.deploy.launch import launch
from armload.deploy.layout import Layout
from armload.deploy.lease import Lease
from armload.engines.engine import Engine
from armload.engines.job import Job
from armload.runs.prepare import Prepared, prepare
from armload.runs.session import Session


def put_ready(session: Session, engine: Engine, progress: Progress) -> Prepared:
    """Put what an engine needs on a board, and bring the board into the state that runs ask for."""
    host, board = session.connection.host, session.connection.board
    deployment = deploy(host, board, engine.payload, progress)
    return prepare(host, board, engine, deployment, progress)


def set_off(
    session: Session,
    engine: Engine,
    prepared: Prepared,
    job: Job,
    folder: PurePosixPath,
    lease: Lease | None,
) -> None:
    """Start an engine on a board that is ready for it, and leave the lease to its run.

    Args:
        lease: none for what runs beside another run, which keeps the board.
    """
    host = session.connection.host
    layout = Layout(workdir=session.connection.board.workdir)
    engine.place_secret(host, layout)
    with lease.handed_to_run() if lease is not None else nullcontext():
        launch(
            host,
            run_folder=folder,
            argv=job.command,
            environment=job.environment,
            trace=True,
            time_limit_s=engine.time_limit_s,
            job=job.model_dump_json().encode(),
            fingerprint=job.fingerprint,
            lease=lease,
            uses=prepared.uses,
            setup=prepared.setup,
            program=engine.program(prepared.context),
            service_options=engine.service_options(layout),
        )
