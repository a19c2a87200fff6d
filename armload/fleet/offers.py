"""Which boards the workers of a scheduler offer, and which command holds one, as Dask knows it.

A Dask worker starts tasks that need resources in the order in which they came: a task that waited
there for a busy board would delay those for idle boards. So a command submits a task once it holds
the lock of its board.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from armload.boards.group import members_of
from armload.core.errors import ConnectError, TransferError
from armload.core.values import Value

if TYPE_CHECKING:
    from distributed import Client, Lock

VERSION = "armload"
"""What the version is called in what Dask knows of a worker."""

_OFFER = "board:"

_LOOK_EVERY_S = 1.0
_LEASE_S = 5
"""After so long, the lock of a command that was killed is released."""

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


@contextmanager
def held(client: Client, boards: Sequence[str], waiting: Callable[[str], None]) -> Iterator[None]:
    """Hold boards, the members of a group say, until the block ends.

    While one of them is waited for, others may have the rest.

    Args:
        waiting: called about once a second with the name of a board that another command holds.

    Raises:
        Exception: any but ours, if the scheduler is lost before they are held.
    """
    locks = {board: _lock(client, board) for board in sorted(boards)}
    order = list(locks)
    try:
        while True:
            with ExitStack() as stack:
                busy = _first_busy(client, [(board, locks[board]) for board in order], stack)
                if not busy:
                    yield
                    return
            waiting(busy)
            order.sort(key=lambda board: board != busy)
    finally:
        for lock in locks.values():  # on the loop, where each is to be started before
            lock.loop.add_callback(lock.refresh_callback.stop)


def _lock(client: Client, board: str) -> Lock:
    import dask
    from distributed import Lock

    with dask.config.set({"distributed.scheduler.locks.lease-timeout": _LEASE_S}):
        lock = Lock(f"armload-{board}", scheduler_rpc=client.scheduler, loop=client.loop)
        lock.register()
    return lock


def _first_busy(client: Client, locks: Sequence[tuple[str, Lock]], stack: ExitStack) -> str:
    """Take locks until the stack is closed; return the first board whose lock is not free."""
    for board, lock in locks:
        if not lock.acquire(timeout=_LOOK_EVERY_S):
            return board
        stack.callback(_release, client, lock)
    return ""


def _release(client: Client, lock: Lock) -> None:
    # To a scheduler that is gone, Dask would try to connect for half a minute.
    if client.status == "running":
        with suppress(Exception):
            lock.release()
