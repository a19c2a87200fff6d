"""A load on a service at one rate, or at one number of concurrent clients, and a list of such."""

from __future__ import annotations

from typing import Any, Literal

from armload.analysis.load.objectives import Objectives
from armload.core.values import Value


class ClockOffset(Value):
    """How to convert between this machine's monotonic clock and the board's.

    Attributes:
        board_minus_client_s: what to add to a time on the client's clock.
        error_s: the offset is known within this, to either side.
        boot_id: the boot of the board that it holds for.
    """

    board_minus_client_s: float
    error_s: float
    boot_id: str


class LoadPoint(Value):
    """One step of a sweep.

    Attributes:
        rate: requests/s on average, in an open loop.
        concurrency: clients that each wait for an answer before they send again, in a closed loop.
        duration_s: in which requests are scheduled; none where a number of requests ends it.
        requests: that were scheduled.
        started_utc: when.
        began_client_s: the client's monotonic clock at time 0 of the requests; 0 before that.
        is_under_way: it has not ended; of a load that nobody runs, its command was killed.
        clock: of the board; none for a service that is reached by its URL alone.
    """

    rate: float | None = None
    concurrency: int | None = None
    duration_s: float | None = None
    requests: int
    started_utc: str
    began_client_s: float
    is_under_way: bool = False
    clock: ClockOffset | None = None


class Load(Value):
    """What was sent to which service; it lies in ``loads/<id>/load.json``.

    The requests of point *k* are lines of ``requests-<k>.jsonl`` beside it, the trace of the
    server in that time ``trace-<k>.jsonl``, and what was sampled of the board ``board-<k>.jsonl``.

    Attributes:
        id: the folder's name.
        url: of the service, without a key.
        board, run: where armload serves the model, and the run's id there; empty for another
            service.
        model: by its name.
        service: the settings that it is served with, where they are known.
        dialect: that the client spoke.
        arrivals: ``poisson``, ``constant``, ``gamma:SHAPE``, ``seed``, or ``closed``.
        seed: of the schedule and of the synthetic requests.
        requests_from: the file, or the lengths of synthetic requests.
        requests_sha256: of what was sent.
        objectives: that its requests were to stay within; none where none were given.
        finds_rate: its rates were chosen to find the highest that is sustained for sure.
        points: in the order in which they were run.
    """

    format: Literal[1] = 1
    id: str
    started_utc: str
    armload: str
    url: str
    board: str = ""
    run: str = ""
    model: str = ""
    service: dict[str, Any] | None = None
    dialect: str
    arrivals: str
    seed: int
    requests_from: str
    requests_sha256: str = ""
    objectives: Objectives | None = None
    finds_rate: bool = False
    points: tuple[LoadPoint, ...] = ()
