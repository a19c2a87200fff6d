"""How long synthetic requests and answers are, in tokens."""

from __future__ import annotations

import math
import random
import re
from typing import Literal

from armload.core.errors import UsageError
from armload.core.values import Value

LONGEST = 1_000_000
_EXAMPLES = "Examples: 128, uniform:16-128, lognormal:100:0.8 (median and sigma)"


class Lengths(Value):
    """A distribution of lengths.

    Attributes:
        kind: all alike, evenly between two, or lognormal around a median.
        low, high: of ``uniform``; both are the length where all are alike.
        median, sigma: of ``lognormal``; sigma is the standard deviation of the logarithm.
    """

    kind: Literal["constant", "uniform", "lognormal"]
    low: int = 1
    high: int = LONGEST
    median: float = 0.0
    sigma: float = 0.0

    def __str__(self) -> str:
        match self.kind:
            case "constant":
                return str(self.low)
            case "uniform":
                return f"uniform:{self.low}-{self.high}"
            case "lognormal":
                return f"lognormal:{self.median:g}:{self.sigma:g}"

    @property
    def usual_most(self) -> int:
        """The longest; of a lognormal distribution, which has none, the median."""
        return round(self.median) if self.kind == "lognormal" else self.high

    def scaled(self, share: float) -> Lengths:
        """Return lengths that are shorter by a share, and 1 or more."""
        return self.model_copy(
            update={
                "low": max(1, int(self.low * share)),
                "high": max(1, int(self.high * share)),
                "median": max(1, round(self.median * share)),
            }
        )

    def draw(self, generator: random.Random) -> int:
        """Draw a length of 1 or more."""
        if self.kind == "lognormal":
            drawn = round(self.median * math.exp(generator.gauss(0.0, self.sigma)))
            return min(max(drawn, self.low), self.high)
        return generator.randint(self.low, self.high)


def read_lengths(option: str, text: str) -> Lengths:
    """Read what a person typed, such as ``128`` or ``uniform:16-128``.

    Raises:
        UsageError: it is no distribution; names the option.
    """
    if (match := re.fullmatch(r"(\d{1,9})|uniform:(\d{1,9})-(\d{1,9})", text)) is not None:
        low, high = (int(match[1]),) * 2 if match[1] else (int(match[2]), int(match[3]))
        if 1 <= low <= high <= LONGEST:
            return Lengths(kind="constant" if match[1] else "uniform", low=low, high=high)
    elif (match := re.fullmatch(r"lognormal:([\d.]+):([\d.]+)", text)) is not None:
        try:
            median, sigma = float(match[1]), float(match[2])
        except ValueError:
            median = sigma = 0.0
        if 1 <= median <= LONGEST and 0 < sigma <= 5:
            return Lengths(kind="lognormal", median=median, sigma=sigma)
    raise UsageError(f"--{option} {text!a}: is not a distribution of token counts.", _EXAMPLES)
