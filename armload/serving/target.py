"""A service that is put under load, what can be observed of it, and how much load."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from armload.analysis.energy import PowerLine
from armload.analysis.load.records import ClockOffset
from armload.core.progress import Progress
from armload.core.values import Value, counted
from armload.engines.job import Job
from armload.engines.plan import REQUEST_TIMEOUT_S
from armload.serving.dialects.dialect import Dialect


class Observed(Protocol):
    """A service on a board, as far as it can be observed."""

    def check(self, *, is_certain: bool = False) -> None:
        """Do nothing while the server runs.

        Args:
            is_certain: the board must answer now; else an answer of a while ago will do.

        Raises:
            RunError: it has ended; says why.
            ConnectError: the board does not answer.
        """

    def clock(self) -> ClockOffset:
        """Measure the board's monotonic clock against this machine's."""

    def sample(self) -> dict[str, Any]:
        """Return the state of the board."""

    def trace(self, from_board_s: float, to_board_s: float) -> Iterator[str]:
        """Yield the lines of the server's trace from that time, its header first."""

    def idle_power(self, progress: Progress) -> tuple[PowerLine, ...]:
        """Return what the board's power meter shows now; nothing without a meter."""

    def power_recorded(
        self, path: Path, idle: Sequence[PowerLine], progress: Progress
    ) -> AbstractContextManager[None]:
        """Write what the meter shows within the block, after lines of the idle board."""


@dataclass(frozen=True, kw_only=True)
class LoadTarget:
    """A service that is put under load.

    Attributes:
        url: without a path or a key.
        api_key: empty for none.
        model: the name that is asked for.
        dialect: that it is asked in.
        service: where armload serves it on a board; none for any other.
        board, run, settings: of that.
        job: of that, as it was started.
        installed: name of an installed service, which others may ask meanwhile; empty for others.
    """

    url: str
    api_key: str
    model: str
    dialect: Dialect
    service: Observed | None = None
    board: str = ""
    run: str = ""
    settings: dict[str, Any] | None = None
    job: Job | None = None
    installed: str = ""


RateUnit = Literal["requests", "conversations"]


class LoadLevel(Value):
    """How fast requests of a point come: one of the first two is set.

    Attributes:
        rate: requests/s, or conversations/s, in an open loop.
        concurrency: clients, in a closed loop.
        unit: of the rate.
        max_concurrency: requests in flight at most, in an open loop; none for any number.
    """

    rate: float | None = None
    concurrency: int | None = None
    unit: RateUnit = "requests"
    max_concurrency: int | None = None

    def __str__(self) -> str:
        if self.rate is not None:
            return f"{self.rate:g} {self.unit}/s"
        return counted(self.concurrency or 0, "client")


class StopCondition(Value):
    """How long a point lasts, and what of it counts.

    Attributes:
        duration_s: in which requests are sent; none if their number ends it.
        requests: how many at most.
        warmup: how many of the first are excluded from the figures.
        warmup_s: likewise in an open loop, the time in which those are sent.
        timeout_s: the most that a request may take.
        failures: end early once that many requests have failed; none for never.
    """

    duration_s: float | None = None
    requests: int | None = None
    warmup: int = 0
    warmup_s: float = 0.0
    timeout_s: float = REQUEST_TIMEOUT_S
    failures: int | None = None
