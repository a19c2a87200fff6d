"""An installed service as a partner of a conversation, or as what is put under load."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from armload.boards.board import Board
from armload.core.errors import RunError, UsageError
from armload.core.progress import Progress
from armload.services.asking import reached
from armload.services.listing import services_of
from armload.services.reaching import key_of, reached_service
from armload.serving.chat_partner import ChatPartner
from armload.serving.dialects.dialect import Dialect
from armload.serving.dialects.openai import OpenAiChat
from armload.serving.target import LoadTarget


@contextmanager
def target_installed(
    board: Board, name: str, model: str, dialect: Dialect, progress: Progress
) -> Iterator[LoadTarget]:
    """Reach an installed service of a board within the block.

    Args:
        model: of a service of several; empty for the first.

    Raises:
        UsageError: the board has no such service, or that no such model.
    """
    with reached_service(board, name, progress) as service:
        names = [each.alias for each in service.record.models]
        wanted = model.removesuffix(".gguf")
        if wanted and wanted not in names:
            raise UsageError(
                f"{board.name}: the service {service.layout.name} has no model {model}.",
                f"It has: {', '.join(names)}.",
            )
        chosen = service.record.models[names.index(wanted) if wanted else 0]
        key = key_of(service.host, service.layout)
        with reached(service.host, service.record) as url:
            yield LoadTarget(
                url=url,
                api_key=key,
                model=chosen.alias,
                dialect=dialect,
                board=board.name,
                settings=chosen.plan.model_dump(mode="json"),
                installed=service.layout.name,
            )


def service_to_talk_to(board: Board, model: str, progress: Progress) -> str:
    """Return the name of a board's installed service that answers; empty if a run comes first.

    Args:
        model: that it must have; empty for any.

    Raises:
        UsageError: there are several.
    """
    every = services_of(board, progress)
    if any(each.run for each in every):
        return ""
    wanted = model.removesuffix(".gguf")
    found = [
        each.name
        for each in every
        if each.installed is not None
        and each.is_running
        and (not wanted or wanted in each.models.split(", "))
    ]
    if len(found) > 1:
        raise UsageError(
            f"{board.name} has several services: {', '.join(found)}.",
            "Choose one with --service.",
        )
    return found[0] if found else ""


@contextmanager
def partner_installed(
    board: Board, name: str, model: str, progress: Progress
) -> Iterator[ChatPartner]:
    """Yield an installed service of a board as a partner, which goes on after the block."""

    def check() -> None:
        every = services_of(board, progress)
        if not any(
            each.installed and each.name == target.installed and each.is_running for each in every
        ):
            raise RunError(
                f"{board.name}: the service {target.installed} is not running.",
                f"See why: armload service.logs --board {board.name} --name {target.installed}",
            )

    with target_installed(board, name, model, OpenAiChat(), progress) as target:
        yield ChatPartner(target, check)
