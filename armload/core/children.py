"""Programs that were started and lead sessions of their own, so that an interruption can end them.

A terminal's Ctrl-C does not reach them, and a thread that waits for one hears of no interruption.
Where this process is killed, a shell that outlives it ends them. Work that a thread does while the
caller does something else is stopped with those that it has started.
"""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from armload.core.progress import Progress, Stoppable

END_PATIENCE_S = 5.0


class _Child(NamedTuple):
    is_kept: bool
    """What follows an interruption needs it."""
    thread: int
    """That waits for it."""


_living: dict[int, _Child] = {}
"""Processes that were started, by their numbers."""

_ended = threading.Event()
_lock = threading.Lock()

# PR_SET_PDEATHSIG would follow the thread that starts a program, and macOS lacks it.
_GUARD = r"""
living=' '
while read -r change pid; do
  case $change in
    +) living="$living$pid " ;;
    -) living="${living%% $pid *} ${living#* $pid }" ;;
  esac
done
for signal in TERM KILL; do
  for pid in $living; do kill "-$signal" "-$pid" && left=1; done 2>/dev/null
  [ -n "$left" ] || exit 0
  sleep 2
done
"""


class _Guard:
    """A shell that reads which programs live until the pipe from this process closes."""

    def __init__(self) -> None:
        self._shell: subprocess.Popen[bytes] | None = None

    def tell(self, change: str, pid: int) -> None:
        """Note that a program has started, ``+``, or ended, ``-``."""
        if self._shell is None:
            with suppress(OSError):  # without a shell there is no guard, and nothing else is lost
                self._shell = subprocess.Popen(
                    ["sh", "-c", _GUARD],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    bufsize=0,
                    start_new_session=True,
                )
                atexit.register(self._end, self._shell)
        if self._shell is not None and self._shell.stdin is not None:
            with suppress(OSError):
                self._shell.stdin.write(f"{change} {pid}\n".encode())

    @staticmethod
    def _end(shell: subprocess.Popen[bytes]) -> None:
        if shell.stdin is not None:
            shell.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            shell.wait(END_PATIENCE_S)


_guard = _Guard()


@contextmanager
def known(process: subprocess.Popen[Any], *, is_kept: bool = False) -> Iterator[None]:
    """Know of a program that leads a session while the block runs.

    Args:
        is_kept: an interruption leaves it, since what is to be stopped is reached by it.
    """
    with _lock:
        _living[process.pid] = _Child(is_kept=is_kept, thread=threading.get_ident())
        _guard.tell("+", process.pid)
        if _ended.is_set():
            _end(process.pid)
    try:
        yield
    finally:
        with _lock:
            _living.pop(process.pid, None)
            _guard.tell("-", process.pid)


def run_watched(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    watch: Callable[[str], None],
    keep_open: int,
    folder: Path | None = None,
    nice: int = 0,
) -> int:
    """Run a program, show each line that it writes to ``watch``, and return its status.

    A carriage return ends a line, too. When this is interrupted, the program and its children are
    ended first.

    Args:
        environment: all its variables.
        keep_open: a file descriptor that it inherits: a lock that is held as long as one of its
            children lives.
        folder: it runs in; none for this process's.
        nice: how much it steps back for other programs, 0 to 19.
    """
    with (
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            cwd=folder,
            env=environment,
            text=True,
            encoding="utf-8",
            errors="replace",
            pass_fds=[keep_open],
            start_new_session=True,
        ) as process,
        known(process),
    ):
        try:
            if nice:
                os.setpriority(os.PRIO_PGRP, process.pid, nice)
            assert process.stdout is not None  # noqa: S101 - it is a pipe, as set above
            for line in process.stdout:
                watch(line)
            return process.wait()
        except BaseException:
            end(process)
            raise


def end(process: subprocess.Popen[Any]) -> None:
    """End a program that leads a session, and its children.

    It is asked to end first: ninja and git then remove incomplete files.
    """
    for kind in (signal.SIGINT, signal.SIGKILL):
        if process.poll() is None:
            os.killpg(process.pid, kind)
            try:
                process.wait(END_PATIENCE_S)
            except subprocess.TimeoutExpired:
                continue


def end_work(thread: int | None = None) -> None:
    """Ask the known programs to end that an interruption does not leave, and their children.

    Args:
        thread: only those that this one waits for; none for all.
    """
    with _lock:
        for pid, child in _living.items():
            if not child.is_kept and thread in (None, child.thread):
                _end(pid)


def end_all() -> None:
    """Ask every known program and its children to end: the threads that wait for them continue.

    What such a thread starts before the process ends is ended too.
    """
    with _lock:
        _ended.set()
        for pid in _living:
            _end(pid)


def _end(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGTERM)


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
