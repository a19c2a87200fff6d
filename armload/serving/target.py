"""A service that is put under load, and how much load."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from armload.core.values import Value, counted
from armload.engines.job import Job
from armload.engines.plan import REQUEST_TIMEOUT_S
from armload.serving.dialects.dialect import Dialect
from armload.serving.observing import Observed


@dataclass(frozen=True, kw_only=True)
class Target:
    """A service that is put under load.

    Attributes:
        url: without a path or a key.
        api_key: empty for none.
        model: the name that is asked for.
        dialect: that it is asked in.
        service: where armload serves it on a board; none for any other.
        board, run, settings: of that.
        job: of that, as it was started.
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


class Pace(Value):
    """How fast requests of a point come: one of the two is set.

    Attributes:
        rate: requests/s, in an open loop.
        concurrency: clients, in a closed loop.
    """

    rate: float | None = None
    concurrency: int | None = None

    def __str__(self) -> str:
        if self.rate is not None:
            return f"{self.rate:g} requests/s"
        return counted(self.concurrency or 0, "client")


class Extent(Value):
    """How long a point lasts, and what of it counts.

    Attributes:
        duration_s: in which requests are sent; none if their number ends it.
        requests: how many at most.
        warmup: how many of the first are excluded from the figures.
        timeout_s: the most that a request may take.
    """

    duration_s: float | None = None
    requests: int | None = None
    warmup: int = 0
    timeout_s: float = REQUEST_TIMEOUT_S
