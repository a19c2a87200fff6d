"""The same work for several boards at once; one that fails does not stop the others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from invoke.exceptions import Exit

from armload.cli.verb import show_error
from armload.core.children import end_all
from armload.core.errors import ArmloadError

Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class BoardResult(Generic[Result]):
    """How the work for one board ended.

    Attributes:
        name: of the board.
        result: what it gave; none when it failed.
        error: why it failed.
    """

    name: str
    result: Result | None = None
    error: ArmloadError | None = None


def at_once(names: Sequence[str], work: Callable[[str], Result]) -> list[BoardResult[Result]]:
    """Do the work for all names in parallel and wait for it.

    An interruption does not wait: what the threads have started is ended, and they end with
    the process.

    Raises:
        Exception: any but an ``ArmloadError`` that the work raised.
    """
    outcomes: dict[str, BoardResult[Result]] = {}
    faults: list[BaseException] = []

    def do(name: str) -> None:
        try:
            outcomes[name] = BoardResult(name=name, result=work(name))
        except ArmloadError as error:
            outcomes[name] = BoardResult(name=name, error=error)
        except BaseException as fault:  # noqa: BLE001 - raised again below
            faults.append(fault)

    threads = [threading.Thread(target=do, args=(name,), daemon=True) for name in names]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    except BaseException:
        end_all()
        raise
    if faults:
        raise faults[0]
    return [outcomes[name] for name in names]


def end_if_failed(outcomes: Sequence[BoardResult[Result]]) -> None:
    """Show why the work failed for some boards, where it did.

    Raises:
        Exit: it did; with the status of the first of them.
    """
    failed = {one.name: one.error for one in outcomes if one.error is not None}
    for name, error in failed.items():
        begins = "" if error.message.startswith(name) else f"{name}: "
        show_error(f"{begins}{error.message}", error.remedy)
    if failed:
        show_error(f"{len(failed)} of {len(outcomes)} boards failed: {', '.join(failed)}.")
        raise Exit(code=next(iter(failed.values())).exit_status)
