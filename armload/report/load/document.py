"""A load as JSON; the requests themselves stay in its folder."""

from __future__ import annotations

from armload.analysis.load.assessed import AssessedPoint
from armload.analysis.load.capacity import Capacity
from armload.analysis.load.objectives import Objectives
from armload.core.values import Value
from armload.report.load.loaded import Loaded


class LoadDocument(Value):
    """A load, as far as it ran.

    Attributes:
        load: its id.
        url, board, run, model, dialect, arrivals, seed, requests_from: as in ``load.json``.
        objectives: that its requests were to stay within; none where none were given.
        capacity: what the service sustains within them.
        points: one for each rate or concurrency, the lowest first.
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
    objectives: Objectives | None
    capacity: Capacity | None
    points: tuple[AssessedPoint, ...]

    @classmethod
    def of(cls, loaded: Loaded) -> LoadDocument:
        """Describe a load."""
        load = loaded.load
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
            objectives=loaded.objectives,
            capacity=loaded.capacity,
            points=tuple(point.assessed for point in loaded.points),
        )
