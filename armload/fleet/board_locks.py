"""Boards held by one command at a time, by Dask's locks.

A Dask worker starts tasks that need resources in the order in which they came: a task that waited
there for a busy board would delay those for idle boards. So a command submits a task once it holds
the lock of its board.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distributed import Client, Lock

_LOOK_EVERY_S = 1.0
_LEASE_S = 5
"""After so long, the lock of a command that was killed is released."""


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
