"""Boards served by threads of this process, each with its own connection and progress."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic

from armload.core.children import end_all, end_work
from armload.core.errors import ArmloadError, BusyError, ConnectError
from armload.core.progress import Labelled, Progress, Stoppable
from armload.fleet.tasks import BoardTask, Item, OpenBoard, Result, TaskPool, TaskResult


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
    crew = _Crew(TaskPool(tasks), open_board, ended)
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
    """Do the same work on every board, all at once; errors as for ``serve``.

    Returns:
        How it ended on each, whose name is the item.
    """

    @contextlib.contextmanager
    def opened(board: str, own: Progress) -> Iterator[Callable[[str], Result]]:
        yield lambda _: work(board, own)

    tasks = [BoardTask(item=board, boards=(board,)) for board in boards]
    return serve(tasks, opened, progress).results


class _Crew(Generic[Item, Result]):
    """The threads, and what they have done."""

    def __init__(
        self,
        pool: TaskPool[Item],
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
