"""All services of a board: of a command, detached, and installed."""

from __future__ import annotations

from contextlib import closing
from typing import Literal

from armload.boards.board import Board
from armload.boards.connect import connect, is_off
from armload.boards.host import Host
from armload.core.progress import Progress
from armload.core.values import Value
from armload.deploy.retry import FIRST_ANSWER_S, Retry, with_retries
from armload.runs.board_services import report_ended_services
from armload.services.state import Condition, ServiceOnBoard, installed_services
from armload.serving.listing import RunningService, services_at

Kind = Literal["command", "detached", "installed"]
"""How a service was started: it ends with its command, when it is stopped, or never."""


class ListedService(Value):
    """A service of a board.

    Attributes:
        name: of an installed one; else the id of its run.
        models: what it serves, separated by commas.
        listens: where it answers on the board; none before the model is loaded.
        condition: how it is.
        up_s: how long an installed one has answered; none where it does not, or for others.
        started_utc: when another one was started, or this version of an installed one was made.
        run: the service as a run; none of an installed one.
        installed: as its board tells; none for others.
    """

    board: str
    name: str
    kind: Kind
    models: str
    listens: str | None
    condition: Condition
    up_s: float | None = None
    started_utc: str | None = None
    run: RunningService | None = None
    installed: ServiceOnBoard | None = None

    @property
    def is_running(self) -> bool:
        return self.condition in ("ready", "loading", "pausing")

    @classmethod
    def of_run(cls, found: RunningService) -> ListedService:
        """Describe a service that is a run."""
        return cls(
            board=found.board,
            name=found.run,
            kind="detached" if found.is_detached else "command",
            models=found.model,
            listens=None if found.port is None else f"127.0.0.1:{found.port}",
            condition="loading" if found.port is None else "ready",
            started_utc=found.started_utc,
            run=found,
        )

    @classmethod
    def of_installed(cls, board: str, found: ServiceOnBoard) -> ListedService:
        """Describe an installed service."""
        record = found.record
        return cls(
            board=board,
            name=found.name,
            kind="installed",
            models=record.names if record else "",
            listens=record.listening.words if record else None,
            condition=found.condition,
            up_s=found.uptime_s,
            started_utc=record.created_utc if record else None,
            installed=found,
        )


def services_of(board: Board, progress: Progress) -> tuple[ListedService, ...]:
    """Return all services of a board; nothing where it is a virtual one that is off."""
    if is_off(board):
        return ()
    with closing(connect(board, progress)) as host:
        found = services_on(host, board)
        report_ended_services(host, board, progress)
        return found


def services_on(host: Host, board: Board) -> tuple[ListedService, ...]:
    """Return all services of a board that is connected."""
    retry = Retry(unanswered_s=FIRST_ANSWER_S)
    installed = with_retries(lambda: installed_services(host, board.workdir), retry)
    runs = services_at(host, board)
    return (
        *(ListedService.of_run(each) for each in runs),
        *(ListedService.of_installed(board.name, each) for each in installed),
    )
