"""Work that a thread does while the caller does something else."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from armload.core.children import end_work
from armload.core.progress import Progress, Stoppable

Result = TypeVar("Result")

_AGAIN_S = 0.2


class Meanwhile(Generic[Result]):
    """Work under way in a thread.

    Attributes:
        progress: for what the caller does meanwhile: raises what the work fails with.
    """

    def __init__(self, work: Callable[[Progress], Result], progress: Progress) -> None:
        self.progress: Progress = Stoppable(progress, lambda: self._error)
        self._work = work
        self._shown = progress
        self._results: list[Result] = []
        self._error: BaseException | None = None
        self._stopping = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def result(self) -> Result:
        """Wait for the end of the work and return what it gave; what it failed with is raised."""
        # An interruption of Thread.join lets Python 3.11 take the thread for one that has ended.
        self._ended.wait()
        if self._error is not None:
            raise self._error
        return self._results[0]

    def stop(self) -> None:
        """Stop the work with the programs that it has started, and wait for its end."""
        self._stopping.set()
        if self._thread.ident is None:  # it has not begun
            return
        end_work(self._thread.ident)
        while not self._ended.wait(_AGAIN_S):  # it was about to start a program
            end_work(self._thread.ident)

    def _run(self) -> None:
        def interruption() -> KeyboardInterrupt | None:
            return KeyboardInterrupt() if self._stopping.is_set() else None

        try:
            self._results.append(self._work(Stoppable(self._shown, interruption)))
        except BaseException as error:  # noqa: BLE001 - raised again in the calling thread
            self._error = error
        finally:
            self._ended.set()


@contextmanager
def meanwhile(
    work: Callable[[Progress], Result], progress: Progress
) -> Iterator[Meanwhile[Result]]:
    """Do work in a thread while the block runs; one that fails or is interrupted stops it.

    A second interruption does not wait for the end of the work.
    """
    under_way = Meanwhile(work, progress)
    try:
        under_way.start()
        yield under_way
    except BaseException:
        under_way.stop()
        raise
