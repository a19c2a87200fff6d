"""Tasks for boards, each of which a thread of this process serves with its own connection.

A task is data: what is to be done, and the boards that may do it. Tasks are carried out with a
function that opens a board.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Generic, TypeVar

from armload.core.children import end_all, end_work
from armload.core.errors import ArmloadError, BusyError, ConnectError, InterruptionError
from armload.core.progress import Labelled, Progress, Stoppable

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


@dataclass(frozen=True, kw_only=True)
class Served(Generic[Item, Result]):
    """What became of tasks.

    Attributes:
        results: of all of them, in their order.
        errors: why boards could not be reached, dropped out, or failed at what another one did.
    """

    results: Sequence[TaskResult[Item, Result]]
    errors: Mapping[str, ArmloadError]


def serve(
    tasks: Sequence[BoardTask[Item]],
    open_board: OpenBoard[Item, Result],
    progress: Progress,
    *,
    ended: Callable[[TaskResult[Item, Result]], None] = lambda _: None,
) -> Served[Item, Result]:
    """Do tasks on their boards, all boards at once; one that fails does not stop the others.

    If a board fails at a shared task or drops out, another one does it. A single board is served
    in the calling thread.

    Args:
        tasks: at least one.
        open_board: called in each board's thread, with the progress of that board.
        ended: called for every task that is done, or has failed on its last board; one call at a
            time.

    Raises:
        ArmloadError: the only board failed.
        Exception: any but an ``ArmloadError`` that the work raised.
        KeyboardInterrupt: after all boards have stopped what they did; a second one does not wait.
    """
    boards = tuple(dict.fromkeys(board for task in tasks for board in task.boards))
    crew = _Crew(_TaskPool(tasks), open_board, ended)
    if len(boards) == 1:
        crew.serve(boards[0], progress)
    else:
        crew.serve_all(boards, progress)
    served = Served(results=[crew.result(task) for task in tasks], errors=crew.errors)
    if len(boards) == 1:
        for error in (*served.errors.values(), *(one.error for one in served.results)):
            if error is not None:
                raise error
    return served


def on_each(
    boards: Sequence[str], work: Callable[[str, Progress], Result], progress: Progress
) -> Sequence[TaskResult[str, Result]]:
    """Do the same work on every board, all at once.

    Returns:
        How it ended on each, whose name is the item.
    """

    @contextlib.contextmanager
    def opened(board: str, own: Progress) -> Iterator[Callable[[str], Result]]:
        yield lambda _: work(board, own)

    tasks = [BoardTask(item=board, boards=(board,)) for board in boards]
    return serve(tasks, opened, progress).results


class _TaskPool(Generic[Item]):
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
                    if self._may(board, task) and (
                        task.home in ("", board) or not self._may(task.home, task)
                    ):
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


class _Crew(Generic[Item, Result]):
    """The threads, and what they have done."""

    def __init__(
        self,
        pool: _TaskPool[Item],
        open_board: OpenBoard[Item, Result],
        ended: Callable[[TaskResult[Item, Result]], None],
    ) -> None:
        self._pool = pool
        self._open_board = open_board
        self._ended = ended
        self._one_at_a_time = threading.Lock()
        self._faults: list[BaseException] = []
        self._results: dict[BoardTask[Item], TaskResult[Item, Result]] = {}
        self.errors: dict[str, ArmloadError] = {}

    def result(self, task: BoardTask[Item]) -> TaskResult[Item, Result]:
        """Return how a task ended; one that no board began has the error of a board."""
        if task in self._results:
            return self._results[task]
        board = next(name for name in task.boards if name in self.errors)
        return TaskResult(item=task.item, board=board, outcome=self.errors[board])

    def serve(self, board: str, progress: Progress) -> None:
        """Do what one board may do."""
        try:
            with self._open_board(board, progress) as do:
                while (task := self._pool.take(board)) is not None:
                    self._do(board, task, do)
        except ArmloadError as error:
            self.errors[board] = error
        finally:
            self._pool.leave(board)

    def serve_all(self, boards: Sequence[str], progress: Progress) -> None:
        """Do what several boards may do, each in a thread."""
        stopping = threading.Event()
        ends: list[threading.Event] = []
        try:
            try:
                for board in boards:
                    end = threading.Event()
                    arguments = (board, progress, stopping, end)
                    thread = threading.Thread(
                        target=self._serve_stoppably, args=arguments, daemon=True
                    )
                    thread.start()
                    ends.append(end)
                _wait_for(ends)
            except KeyboardInterrupt:
                progress.say("Stopping the work on all boards. Press Ctrl-C again to quit now.")
                stopping.set()
                self._pool.stop()
                end_work()
                _wait_for(ends)
                raise
        except KeyboardInterrupt:
            end_all()
            raise
        if self._faults:
            raise self._faults[0]

    def _serve_stoppably(
        self, board: str, progress: Progress, stopping: threading.Event, end: threading.Event
    ) -> None:
        try:
            self.serve(board, Stoppable(Labelled(progress, board), lambda: _stop(stopping)))
        except BaseException as fault:  # noqa: BLE001 - raised again in the calling thread
            self._faults.append(fault)
        finally:
            end.set()

    def _do(self, board: str, task: BoardTask[Item], do: Callable[[Item], Result]) -> None:
        try:
            one = TaskResult(item=task.item, board=board, outcome=do(task.item))
        except (ConnectError, BusyError):
            self._pool.give_back(board, task)
            raise
        except ArmloadError as error:
            if self._pool.give_back(board, task):
                self.errors.setdefault(board, error)
                return
            one = TaskResult(item=task.item, board=board, outcome=error)
        except BaseException:  # others wait as long as the task may still be left to them
            self._pool.finish(task)
            raise
        else:
            self._pool.finish(task)
        with self._one_at_a_time:
            self._results[task] = one
            self._ended(one)


def _wait_for(ends: Sequence[threading.Event]) -> None:
    # An interruption of Thread.join lets Python 3.11 take the thread for one that has ended.
    for end in ends:
        end.wait()


def _stop(stopping: threading.Event) -> KeyboardInterrupt | None:
    return KeyboardInterrupt() if stopping.is_set() else None


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
