"""Runs that lie on a board, followed to their end and fetched, as the same command does it."""

from __future__ import annotations

from pathlib import Path

from armload.analysis.run import Run
from armload.core.progress import Progress, Silent
from armload.deploy.board_runs import StoredRun
from armload.runs.fetch import fetch, mark_fetched
from armload.runs.pipeline import ActiveRun
from armload.runs.session import Connection
from tests.one_number import OneNumber, one_number


def resumed(
    connection: Connection, left: StoredRun, folder: Path, progress: Progress
) -> tuple[Run, Path]:
    """Follow and fetch a run; ``folder`` is for an engine, which only says what is counted."""
    engine = OneNumber(one_number(folder, "true"), Silent())
    cut = ActiveRun(connection=connection, folder=left.folder).follow(engine, progress)
    done = fetch(connection.host, connection.board, left.folder, progress, cut=cut)
    mark_fetched(connection.host, left.folder)
    return done
