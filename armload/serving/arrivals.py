"""When requests of an open loop are sent: drawn in advance, from a seed.

numpy's ``RandomState`` keeps its streams from release to release (NEP 19), so a seed always gives
the same schedule.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain, count, islice, takewhile
from typing import TYPE_CHECKING, Literal

from armload.analysis.load.records import Stage
from armload.core.errors import UsageError
from armload.core.values import Value

if TYPE_CHECKING:
    import numpy as np

ArrivalsKind = Literal["poisson", "constant", "gamma", "seed"]

MOST_REQUESTS = 1_000_000
_LEAST_SHAPE, _MOST_SHAPE = 0.01, 1000
_DIGITS = 9
"""To which times and counts are rounded: 7 / 0.07 is just below 100, 100 * 0.07 above 7."""

_KINDS = "poisson, constant, gamma:SHAPE or seed"


def repeat_seed(seed: int, repeat: int) -> int:
    """Return the seed of a repeat's schedule; the largest one is followed by 0."""
    return (seed + repeat) % 2**32


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
        """
        import numpy as np

        generator = np.random.RandomState(seed)
        if self.kind == "seed" and duration_s is not None:
            # int(T * X) requests, however long they take.
            most = int(duration_s * rate)
            requests, duration_s = (most if requests is None else min(requests, most)), None
        expected = requests if requests is not None else (duration_s or 0.0) * rate
        if expected > MOST_REQUESTS:
            raise UsageError(
                f"A load of {expected:,.0f} requests is too large: at most {MOST_REQUESTS:,}.",
                "Give a lower --rate, a shorter --duration, or fewer --requests.",
            )
        until_s = math.inf if duration_s is None else duration_s
        drawn = islice(self._times(rate, generator), requests)
        times = tuple(takewhile(lambda time_s: time_s < until_s, drawn))
        if not times:
            raise UsageError(
                f"A load at {rate:g} requests/s would send no request in that time.",
                "Give a longer --duration, or --requests.",
            )
        return times

    def staged(self, stages: Sequence[Stage], *, seed: int) -> tuple[float, ...]:
        """Draw the times of requests whose rate varies, in seconds from the beginning of the load.

        The gaps are drawn for one request/s, and the cumulated rate is inverted (Çinlar, 1975), so
        that each kind keeps its bursts.

        Args:
            stages: that follow each other without a gap.
        """
        import numpy as np

        if self.kind == "seed":
            raise UsageError(
                "--arrivals seed rounds the gaps of one rate: it cannot be combined with --stages.",
                "Use poisson, constant or gamma:SHAPE.",
            )
        expected = sum(stage.mean_per_s * stage.duration_s for stage in stages)
        if expected > MOST_REQUESTS:
            raise UsageError(
                f"A load of {expected:,.0f} requests is too large: at most {MOST_REQUESTS:,}.",
                "Give lower rates or shorter times to --stages.",
            )
        times = tuple(self._stretched(stages, np.random.RandomState(seed)))
        if not times:
            raise UsageError(
                "A load with these --stages would send no request.", "Use longer stages."
            )
        return times

    def _stretched(
        self, stages: Sequence[Stage], generator: np.random.RandomState
    ) -> Iterator[float]:
        dues = self._times(1.0, generator)
        due = next(dues)
        passed = 0.0
        for stage in stages:
            until = round(passed + stage.mean_per_s * stage.duration_s, _DIGITS)
            growth = (stage.last_per_s - stage.first_per_s) / stage.duration_s
            while due < until:
                within = due - passed
                root = math.sqrt(max(0.0, stage.first_per_s**2 + 2 * growth * within))
                yield min(stage.start_s + 2 * within / (stage.first_per_s + root), stage.end_s)
                due = next(dues)
            passed = until

    def _times(self, rate: float, generator: np.random.RandomState) -> Iterator[float]:
        if self.kind == "constant":
            # A sum of gaps drifts.
            return (round(number / rate, _DIGITS) for number in count())
        # Random arrivals have no event at 0; the seed's client begins with a request.
        first = [0.0] if self.kind == "seed" else []
        return accumulate(chain(first, (self._gap(rate, generator) for _ in count())))

    def _gap(self, rate: float, generator: np.random.RandomState) -> float:
        if self.kind == "gamma":
            return float(generator.gamma(self.shape, 1 / (rate * self.shape)))
        if self.kind == "seed":
            return float(generator.poisson(round(1 / rate, 2) * 1000)) / 1000
        return float(generator.exponential(1 / rate))


def read_arrivals(text: str) -> Arrivals:
    """Read what a person typed: ``poisson``, ``constant``, ``gamma:SHAPE`` or ``seed``."""
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


_LOWEST_PER_S, _HIGHEST_PER_S = 1e-6, 10_000.0
_LONGEST_S = 2**31 - 1
_STAGE = re.compile(r"([0-9.]+)(?:-([0-9.]+))?:([0-9.]+)")


def read_stages(texts: Sequence[str]) -> tuple[Stage, ...]:
    """Read what a person typed: ``RATE:SECONDS``, or ``FROM-TO:SECONDS`` for a ramp, each."""
    stages: list[Stage] = []
    for text in texts:
        start_s = stages[-1].end_s if stages else 0.0
        try:
            match = _STAGE.fullmatch(text)
            first, last, seconds = match.groups() if match else ("", "", "")
            rates = (float(first), float(last or first))
            length_s = float(seconds)
        except ValueError:
            rates, length_s = (0.0, 0.0), 0.0
        is_rate = all(_LOWEST_PER_S <= rate <= _HIGHEST_PER_S for rate in rates)
        if not (is_rate and 0 < length_s <= _LONGEST_S):
            raise UsageError(
                f"--stages {text!a}: must be RATE:SECONDS, or FROM-TO:SECONDS for a ramp.",
                "Example: --stages 0.5:60,2:60,2-0.5:120 (requests per second)",
            )
        stages.append(
            Stage(
                start_s=start_s,
                end_s=start_s + length_s,
                first_per_s=rates[0],
                last_per_s=rates[1],
            )
        )
    return tuple(stages)
