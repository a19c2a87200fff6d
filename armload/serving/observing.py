"""What a board does while a load runs: samples, and the server's trace."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from armload.analysis.load.records import ClockOffset
from armload.core.errors import ArmloadError
from armload.core.progress import Progress

_EVERY_S = 1.0


class Observed(Protocol):
    """A service on a board, as far as it can be observed."""

    def check(self) -> None:
        """Do nothing while the server runs.

        Raises:
            RunError: it has ended; says why.
        """

    def clock(self) -> ClockOffset:
        """Measure the board's monotonic clock against this machine's."""

    def sample(self) -> dict[str, Any]:
        """Return the state of the board."""

    def trace(self, from_board_s: float, to_board_s: float) -> Iterator[str]:
        """Yield the lines of the server's trace from that time, its header first."""


@contextmanager
def sampled(service: Observed, path: Path) -> Iterator[None]:
    """Write a line of samples each second while the block runs.

    A sample that fails, as while a connection is down, is left out.
    """
    done = threading.Event()

    def sample() -> None:
        with path.open("a", encoding="utf-8") as file:
            while not done.is_set():
                try:
                    line = json.dumps(service.sample(), allow_nan=False)
                except ArmloadError:
                    line = ""
                if line:
                    file.write(line + "\n")
                    file.flush()
                done.wait(_EVERY_S)

    thread = threading.Thread(target=sample, name="samples")
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def keep_trace(
    service: Observed, path: Path, *, from_board_s: float, to_board_s: float, progress: Progress
) -> None:
    """Write the server's trace of some time; say so where it cannot be fetched."""
    try:
        with path.open("w", encoding="utf-8") as file:
            for line in service.trace(from_board_s, to_board_s):
                file.write(line if line.endswith("\n") else line + "\n")
    except ArmloadError as error:
        progress.say(f"The server's trace of this time could not be fetched: {error.message}")
