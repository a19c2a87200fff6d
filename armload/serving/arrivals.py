"""When requests of an open loop are sent: drawn in advance, from a seed.

numpy's ``RandomState`` keeps its streams from release to release (NEP 19), so a seed always gives
the same schedule.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from armload.core.errors import UsageError
from armload.core.values import Value

if TYPE_CHECKING:
    import numpy as np

ArrivalsKind = Literal["poisson", "constant", "gamma", "seed"]

MOST_REQUESTS = 1_000_000
_LEAST_SHAPE, _MOST_SHAPE = 0.01, 1000
_KINDS = "poisson, constant, gamma:SHAPE or seed"


class Arrivals(Value):
    """How the gaps between requests are distributed.

    Attributes:
        kind: ``poisson``: exponential gaps; ``constant``: equal ones; ``gamma``: a shape below 1
            makes bursts, one above 1 evens them out; ``seed``: as the test client of llm-serving
            draws them, whole milliseconds from a Poisson distribution whose mean is the gap
            rounded to 10 ms.
        shape: of gamma.
    """

    kind: ArrivalsKind = "poisson"
    shape: float = 1.0

    def __str__(self) -> str:
        return f"gamma:{self.shape:g}" if self.kind == "gamma" else self.kind

    def schedule(
        self, rate: float, *, duration_s: float | None, requests: int | None, seed: int
    ) -> tuple[float, ...]:
        """Draw the times of requests, in seconds from the beginning of the load.

        Args:
            rate: requests/s on average.
            duration_s: in which requests are sent.
            requests: how many, at most; one of the two must be given.
            seed: below 2^32.

        Raises:
            UsageError: there would be none, or more than a million.
        """
        import numpy as np

        generator = np.random.RandomState(seed)
        if self.kind == "seed" and duration_s is not None:
            # int(T * X) requests, however long they take.
            count = int(duration_s * rate)
            requests, duration_s = (count if requests is None else min(requests, count)), None
        expected = requests if requests is not None else (duration_s or 0.0) * rate
        if expected > MOST_REQUESTS:
            raise UsageError(
                f"A load of {expected:,.0f} requests is too large: at most {MOST_REQUESTS:,}.",
                "Give a lower --rate, a shorter --duration, or fewer --requests.",
            )
        times = [] if requests == 0 else [self._first(rate, generator)]
        while times and (requests is None or len(times) < requests):
            if duration_s is not None and times[-1] >= duration_s:
                break
            times.append(times[-1] + self._gap(rate, generator))
        if duration_s is not None:
            times = [each for each in times if each < duration_s]
        if not times:
            raise UsageError(
                f"A load at {rate:g} requests/s has no request in that time.",
                "Give a longer --duration, or --requests.",
            )
        return tuple(times)

    def _first(self, rate: float, generator: np.random.RandomState) -> float:
        # Random arrivals have no event at 0; the seed's client begins with a request.
        return 0.0 if self.kind in ("constant", "seed") else self._gap(rate, generator)

    def _gap(self, rate: float, generator: np.random.RandomState) -> float:
        match self.kind:
            case "poisson":
                return float(generator.exponential(1 / rate))
            case "constant":
                return 1 / rate
            case "gamma":
                return float(generator.gamma(self.shape, 1 / (rate * self.shape)))
            case "seed":
                return float(generator.poisson(round(1 / rate, 2) * 1000)) / 1000


def read_arrivals(text: str) -> Arrivals:
    """Read what a person typed: ``poisson``, ``constant``, ``gamma:SHAPE`` or ``seed``.

    Raises:
        UsageError: it is none of them.
    """
    kind, colon, shape = text.partition(":")
    if kind in ("poisson", "constant", "seed") and not colon:
        return Arrivals.model_validate({"kind": kind})
    if kind == "gamma":
        try:
            number = float(shape)
        except ValueError:
            number = math.nan
        if _LEAST_SHAPE <= number <= _MOST_SHAPE:
            return Arrivals(kind="gamma", shape=number)
        raise UsageError(
            f"--arrivals {text!a}: the shape must be a number from {_LEAST_SHAPE} to "
            f"{_MOST_SHAPE}.",
            "Example: gamma:0.5",
        )
    raise UsageError(f"--arrivals {text!a}: must be {_KINDS}.")
