"""Which boards the workers of a scheduler offer, as Dask knows it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from armload.boards.group import members_of
from armload.core.errors import ConnectError, TransferError
from armload.core.values import Value

VERSION = "armload"
"""What the version is called in what Dask knows of a worker."""

_OFFER = "board:"

_Word = Annotated[str, Field(max_length=500)]


def resources_of(boards: Iterable[str]) -> dict[str, float]:
    """Return boards as Dask's resources, each of which one task has at a time."""
    return {f"{_OFFER}{board}": 1.0 for board in boards}


def names_in(board: str) -> tuple[str, ...]:
    """Return the names of a group's members; of a single board, its own."""
    return tuple(each.name for each in members_of(board))


class GatewayWorker(Value):
    """A worker that offers boards.

    Attributes:
        address: of the worker, as Dask knows it.
        name: of the gateway.
        version: armload's there; empty for a worker that is not armload's.
    """

    address: str
    name: str
    version: str
    boards: tuple[str, ...]


def not_offered(
    board: str, members: Sequence[str], url: str, workers: Sequence[GatewayWorker]
) -> ConnectError:
    """Return the error of a board, or a group, that no worker of a scheduler offers."""
    start = f"armload worker --scheduler {url} --boards {','.join(members)}"
    if members == (board,):
        offered = sorted({name for each in workers for name in each.boards})
        return ConnectError(
            f"No worker of {url} offers {board}. Offered: {', '.join(offered) or 'no boards'}.",
            f"On its gateway, start: {start}",
        )
    gateways = {
        member: " and ".join(sorted({each.name for each in workers if member in each.boards}))
        for member in members
    }
    where = ", ".join(f"{member} ({gateways[member] or 'no worker'})" for member in members)
    return ConnectError(
        f"No worker of {url} offers all members of {board}: {where}.",
        f"On one gateway that reaches them all, start: {start}",
    )


class _Worker(BaseModel):
    """What a scheduler says of a worker, as far as it matters here."""

    model_config = ConfigDict(strict=True)

    name: _Word | int
    resources: Mapping[_Word, float]
    armload: _Word = ""


class _Identity(BaseModel):
    workers: Mapping[_Word, _Worker]


def workers_of(said: object) -> list[GatewayWorker]:
    """Return the workers that a scheduler knows.

    Raises:
        TransferError: it says something else.
    """
    try:
        known = _Identity.model_validate(said).workers
    except ValidationError as error:
        raise TransferError(
            "The scheduler says of its workers what is not in Dask's format.",
            "Install the same version of distributed there as here.",
        ) from error
    return [
        GatewayWorker(
            address=address,
            name=str(worker.name).partition("/")[0],
            version=worker.armload,
            boards=tuple(
                name.removeprefix(_OFFER) for name in worker.resources if name.startswith(_OFFER)
            ),
        )
        for address, worker in known.items()
    ]
