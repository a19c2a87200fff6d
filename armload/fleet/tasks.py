"""Tasks for boards, and which board is to do which.

A task is data: what is to be done, and the boards that may do it. Tasks are carried out with a
function that opens a board.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Generic, TypeVar

from armload.core.errors import ArmloadError
from armload.core.progress import Progress

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True, eq=False)
class BoardTask(Generic[Item]):
    """A piece of work for one board.

    Attributes:
        item: what is to be done.
        boards: that may do it; a task of several is shared.
        home: the one of them that does it unless it fails; empty for any that is free.
    """

    item: Item
    boards: tuple[str, ...]
    home: str = ""


OpenBoard = Callable[[str, Progress], AbstractContextManager[Callable[[Item], Result]]]
"""Opens a board by its name for some tasks; what it yields does one of them."""


@dataclass(frozen=True, kw_only=True)
class TaskResult(Generic[Item, Result]):
    """How a task ended.

    Attributes:
        board: that did it, or failed last.
        outcome: what it gave, or why it failed.
    """

    item: Item
    board: str
    outcome: Result | ArmloadError

    @property
    def result(self) -> Result | None:
        """What it gave; none when it failed."""
        return None if isinstance(self.outcome, ArmloadError) else self.outcome

    @property
    def error(self) -> ArmloadError | None:
        """Why it failed."""
        return self.outcome if isinstance(self.outcome, ArmloadError) else None


class TaskPool(Generic[Item]):
    """Tasks that boards take, each in a thread of its own.

    A task that failed on one board goes to another that may do it.
    """

    def __init__(self, tasks: Sequence[BoardTask[Item]]) -> None:
        self._waiting = list(tasks)
        self._held: list[BoardTask[Item]] = []
        self._tried: dict[BoardTask[Item], set[str]] = {task: set() for task in tasks}
        self._gone: set[str] = set()
        self._is_stopped = False
        self._changed = threading.Condition()

    def take(self, board: str) -> BoardTask[Item] | None:
        """Return the next task of a board; wait while another board may leave it one.

        Returns:
            None when nothing is left for it.
        """
        with self._changed:
            while True:
                if self._is_stopped:
                    return None
                for task in self._waiting:
                    if self._may(board, task) and self._is_free(board, task):
                        self._waiting.remove(task)
                        self._held.append(task)
                        return task
                if not any(self._may(board, task) for task in (*self._waiting, *self._held)):
                    return None
                self._changed.wait()

    def finish(self, task: BoardTask[Item]) -> None:
        """Note that a task needs no other board."""
        with self._changed:
            self._held.remove(task)
            self._changed.notify_all()

    def give_back(self, board: str, task: BoardTask[Item]) -> bool:
        """Leave a task to another board; return False if there is none, which finishes it."""
        with self._changed:
            self._held.remove(task)
            self._tried[task].add(board)
            is_left = any(self._may(other, task) for other in task.boards)
            if is_left:
                self._waiting.insert(0, task)
            self._changed.notify_all()
            return is_left

    def leave(self, board: str) -> None:
        """Note that a board takes no more tasks."""
        with self._changed:
            self._gone.add(board)
            self._changed.notify_all()

    def stop(self) -> None:
        """Let no board take another task."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()

    def _may(self, board: str, task: BoardTask[Item]) -> bool:
        return board in task.boards and board not in self._tried[task] | self._gone

    def _is_free(self, board: str, task: BoardTask[Item]) -> bool:
        return task.home in ("", board) or not self._may(task.home, task)
