"""The same work on several boards, one after another, up to the first that fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from armload.core.errors import ArmloadError, InterruptionError
from armload.core.progress import Labelled, Progress
from armload.fleet.threads import TaskResult

Done = TypeVar("Done")


def in_turn(
    boards: Sequence[str], work: Callable[[str, Progress], Done], progress: Progress
) -> tuple[TaskResult[str, Done], ...]:
    """Return how the work ended on each board; of those after a failed one, that it did not begin.

    Raises:
        ArmloadError: it failed on the only board.
        InterruptionError: it was interrupted on any.
    """
    found: list[TaskResult[str, Done]] = []
    failed = ""
    for board in boards:
        own = progress if len(boards) == 1 else Labelled(progress, board)
        outcome: Done | ArmloadError
        if failed:
            outcome = ArmloadError(f"{board} was not begun, because {failed} failed.")
        else:
            try:
                outcome = work(board, own)
            except ArmloadError as error:
                if len(boards) == 1 or isinstance(error, InterruptionError):
                    raise
                outcome, failed = error, board
        found.append(TaskResult(item=board, board=board, outcome=outcome))
    return tuple(found)
