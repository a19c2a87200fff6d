"""Service-level objectives: the latencies that a request must stay within."""

from __future__ import annotations

import re
from typing import Literal

from armload.core.errors import UsageError
from armload.core.values import Value

_EXAMPLE = "Example: --slo ttft=2s,tpot=500ms"
_TIME = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|)")

Objective = Literal["ttft", "tpot", "e2e"]


class Objectives(Value):
    """The most that each latency of a request may be; none where it does not matter.

    Attributes:
        ttft_s: time to first token, from the scheduled time.
        tpot_s: time per output token, without the first.
        e2e_s: end-to-end latency, from the scheduled time.
    """

    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None

    def __str__(self) -> str:
        limits = {"ttft": self.ttft_s, "tpot": self.tpot_s, "e2e": self.e2e_s}
        return ",".join(f"{name}={each:g}s" for name, each in limits.items() if each is not None)


def read_objectives(text: str) -> Objectives | None:
    """Read what a person typed, such as ``ttft=2s,tpot=500ms``; none of an empty text.

    Raises:
        UsageError: an objective is unknown, given twice, or no time above 0.
    """
    if not text:
        return None
    limits: dict[str, float] = {}
    for part in text.split(","):
        name, equals, time = part.strip().partition("=")
        if name not in ("ttft", "tpot", "e2e"):
            raise UsageError(
                f"--slo {text!a}: {name!a} is not a latency metric.",
                f"Use ttft, tpot or e2e. {_EXAMPLE}",
            )
        if f"{name}_s" in limits:
            raise UsageError(f"--slo {text!a}: {name} is given twice.", _EXAMPLE)
        match = _TIME.fullmatch(time.strip())
        limit = float(match[1]) / (1000 if match[2] == "ms" else 1) if match and equals else 0.0
        if limit <= 0:
            raise UsageError(f"--slo {text!a}: {name} must be a time above 0.", _EXAMPLE)
        limits[f"{name}_s"] = limit
    return Objectives(**limits)
