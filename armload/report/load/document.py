"""A load as JSON; the requests themselves stay in its folder."""

from __future__ import annotations

from collections.abc import Sequence

from armload.analysis.load.metrics import Metrics, metrics_of
from armload.analysis.load.objectives import Objectives
from armload.core.values import Value
from armload.serving.loads import KeptLoad


class MeasuredPoint(Value):
    """One point of a load.

    Attributes:
        rate: requests/s on average, in an open loop.
        concurrency: clients, in a closed loop.
        metrics: its figures.
    """

    rate: float | None
    concurrency: int | None
    metrics: Metrics


class LoadDocument(Value):
    """A load, as far as it ran.

    Attributes:
        load: its id.
        url, board, run, model, dialect, arrivals, seed, requests_from: as in ``load.json``.
        points: one for each rate or concurrency.
    """

    load: str
    url: str
    board: str
    run: str
    model: str
    dialect: str
    arrivals: str
    seed: int
    requests_from: str
    points: tuple[MeasuredPoint, ...]

    @classmethod
    def of(cls, kept: KeptLoad, points: Sequence[MeasuredPoint]) -> LoadDocument:
        """Describe a load."""
        load = kept.load
        return cls(
            load=load.id,
            url=load.url,
            board=load.board,
            run=load.run,
            model=load.model,
            dialect=load.dialect,
            arrivals=load.arrivals,
            seed=load.seed,
            requests_from=load.requests_from,
            points=tuple(points),
        )


def measured_points(kept: KeptLoad, objectives: Objectives | None) -> list[MeasuredPoint]:
    """Compute the figures of all points of a load.

    Raises:
        DataError: a record of requests was modified.
    """
    return [
        MeasuredPoint(
            rate=point.rate,
            concurrency=point.concurrency,
            metrics=metrics_of(point, kept.requests(number), objectives),
        )
        for number, point in enumerate(kept.load.points)
    ]
