"""What a search is for, and what its winner must not break."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from armload.core.values import Value

Objective = Literal["decode", "prefill", "ttft", "energy", "total-time", "rate"]

SERVED: tuple[Objective, ...] = ("total-time", "rate")
"""What is measured by a load on a service, and not by single runs."""


class Aim(Value):
    """An objective as a cost, which is to be small.

    Attributes:
        cost: what it is.
        unit: of the cost.
        rate_unit: of its inverse, where people speak of that; else empty.
        merit, adjective, better: of a setting with a low cost.
        less, more: what a setting is called that costs less or more than another.
    """

    cost: str
    unit: str
    rate_unit: str = ""
    merit: str = "speed"
    adjective: str = "fast"
    better: str = "faster"
    less: str = "faster"
    more: str = "slower"


AIMS: dict[Objective, Aim] = {
    "decode": Aim(cost="time per generated token", unit="s/token", rate_unit="tokens/s"),
    "prefill": Aim(cost="time per prompt token", unit="s/token", rate_unit="tokens/s"),
    "ttft": Aim(cost="time to first token", unit="s"),
    "energy": Aim(
        cost="energy per generated token",
        unit="J/token",
        merit="efficiency",
        adjective="efficient",
        better="more efficient",
        less="less energy",
        more="more energy",
    ),
    "total-time": Aim(cost="total time of the load", unit="s"),
    "rate": Aim(cost="time between sustained requests", unit="s", rate_unit="requests/s"),
}


class LeastAccuracy(Value):
    """How often a model must be right.

    Attributes:
        share: that the lower bound of the 95% interval (Wilson) must reach.
        task, data: as ``eval`` takes them.
        questions: the first so many of the task.
    """

    share: Annotated[float, Field(gt=0, lt=1)]
    task: str
    data: str = ""
    questions: Annotated[int, Field(ge=1)]


class Constraints(Value):
    """What a setting must not break to win; that the text stays sane always counts.

    Attributes:
        max_kld: mean Kullback-Leibler divergence from the defaults' distribution, in nats.
        min_accuracy: of answers to questions.
        max_rss_bytes: peak resident memory.
    """

    max_kld: Annotated[float, Field(gt=0)] | None = None
    min_accuracy: LeastAccuracy | None = None
    max_rss_bytes: Annotated[int, Field(gt=0)] | None = None
