"""Services on boards: where one is reached, and which there are."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from rich.console import RenderableType
from rich.text import Text

from armload.analysis.run import Run
from armload.core.columns import Column
from armload.core.values import Value, counted
from armload.engines.service_plan import ServingPlan
from armload.report import formatting as words
from armload.report.layout import Details, Table, whole
from armload.serving.listing import RunningService
from armload.serving.service import Service


class ServedModel(Value):
    """A service, as this machine's programs reach it.

    Attributes:
        run: the id of the service's run.
        board, model: their names.
        plan: how it is served.
        url: its base, which OpenAI's clients take with ``/v1``; none where the command that
            printed it forwards no port any more.
        front_url: where it answers in another server's protocol, without a key; none for none.
        api_key_file: holds the key that each request has to show.
        is_detached: it goes on when this command ends.
        was_running: it was found, not started.
    """

    run: str
    board: str
    model: str
    plan: ServingPlan
    url: str | None
    front_url: str | None = None
    api_key_file: str
    is_detached: bool
    was_running: bool

    @classmethod
    def of(
        cls, service: Service, *, is_forwarded: bool, front_url: str | None = None
    ) -> ServedModel:
        """Describe a service that is reached."""
        return cls(
            run=service.run,
            board=service.board,
            model=service.model,
            plan=service.plan,
            url=service.url if is_forwarded else None,
            front_url=front_url,
            api_key_file=str(service.key_file),
            is_detached=service.is_detached,
            was_running=service.was_running,
        )


def served_view(served: ServedModel, model: str) -> RenderableType:
    """Lay out where a service is reached, and how it ends.

    Args:
        model: as it was named on the command line.
    """
    reach = f"armload serve --board {served.board} --model {shlex.quote(model)} --port PORT"
    stop = f"armload serve.stop --board {served.board}"
    rows: list[tuple[str, str | Text]] = [
        ("URL", whole(f"{served.url}/v1" if served.url else f"run: {reach}")),
        ("API key", whole(f"in {served.api_key_file}")),
        ("model", served.model),
        ("slots", _slots(served.plan)),
        ("run", whole(served.run)),
        ("stop", stop if served.is_detached else "Ctrl-C"),
    ]
    if served.front_url:
        rows.insert(1, ("front", whole(f"{served.front_url} (llm-serving, without a key)")))
    return Details(rows)


def stopped_lines(ended: Run, folder: Path) -> tuple[str, Text]:
    """Say what is served no longer, and where its files are."""
    said = f"{ended.board.name} no longer serves {ended.model.name}."
    return said, whole(f"kept in {folder}")


def services_view(services: Sequence[RunningService], boards: Sequence[str]) -> RenderableType:
    """Lay out what boards serve, one service a line.

    Args:
        boards: that were asked.
    """
    if not services:
        return (
            f"No services on {', '.join(boards)}. For other boards: armload serve.list --board a,b"
        )
    return Table.of(_SERVICE, services)


def _slots(plan: ServingPlan) -> str:
    return f"{counted(plan.slots, 'slot')} of {counted(plan.context_tokens, 'token')}"


_SERVICE: tuple[Column[RunningService], ...] = (
    Column(heading="board", of=lambda each: each.board),
    Column(heading="model", of=lambda each: each.model),
    Column(heading="slots", of=lambda each: _slots(each.plan)),
    Column(heading="since (UTC)", of=lambda each: words.minute(each.started_utc)),
    Column(
        heading="ends",
        of=lambda each: "by serve.stop" if each.is_detached else "with its command",
    ),
    Column(heading="run", of=lambda each: whole(each.run)),
)
