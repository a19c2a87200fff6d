"""The highest rate at which a service meets its objectives, by bisection.

A closed loop with as many clients as slots shows first what the service can do at most: no rate
above that is sustained. Between an eighth of it and a quarter more, the rate is bisected on a
logarithmic scale. A service whose slots are not known may do more than that: the search goes on
above as long as it meets the objectives and answers requests as fast as they come.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from armload.analysis.load.capacity import is_sustained, is_the_clients_fault
from armload.analysis.load.metrics import Goodput, Metrics, metrics_of
from armload.analysis.load.records import Objectives
from armload.core.errors import UsageError
from armload.core.progress import Progress
from armload.core.values import counted, percentage
from armload.serving.load_runner import LoadRunner, NothingSucceededError
from armload.serving.loads import LoadFolder
from armload.serving.target import LoadLevel, StopCondition

FEWEST_REQUESTS = 40
"""Of fewer, not even all within the objectives show nine of ten with 95% confidence."""

NARROW_FROM = 1.15
"""Ratio of the lowest rate that failed to the highest that did not, at which the search ends."""

_LOWEST_SHARE, _HIGHEST_SHARE = 1 / 8, 1.25
_KEEPS_UP_FROM = 0.8
"""Share of the rate that is answered. A few requests that come in no time may all be within the
objectives at any rate, which then shows nothing."""

_CLIENTS = 4
_PROBES_PER_CLIENT = 3


@dataclass(frozen=True, kw_only=True)
class Bracket:
    """Where the highest rate lies, in requests/s."""

    low: float
    high: float

    @property
    def middle(self) -> float:
        """The next rate to try, with three figures."""
        return _three_figures(math.sqrt(self.low * self.high))

    @property
    def is_narrow(self) -> bool:
        """Whether the search ends."""
        return self.high <= self.low * NARROW_FROM

    def after(self, *, met: bool) -> Bracket:
        """Return where it lies once the middle was tried."""
        if met:
            return Bracket(low=self.middle, high=self.high)
        return Bracket(low=self.low, high=self.middle)

    def tried(self, decide: Callable[[float], bool]) -> list[float]:
        """Return the rates that are tried from here, in order, as each is decided."""
        rates, bracket = [], self
        while not bracket.is_narrow:
            rates.append(bracket.middle)
            bracket = bracket.after(met=decide(bracket.middle))
        return rates


@dataclass(frozen=True, kw_only=True)
class RateVerdict:
    """What a rate has shown.

    Attributes:
        met: enough requests were within the objectives.
        keeps_up: requests were answered about as fast as they came.
    """

    met: bool
    keeps_up: bool


def search(bracket: Bracket, decide: Callable[[float], RateVerdict]) -> list[float]:
    """Return the rates that are tried, in order; also above the bracket where the service can."""
    verdicts: list[RateVerdict] = []

    def met(rate: float) -> bool:
        verdicts.append(decide(rate))
        return verdicts[-1].met

    rates = bracket.tried(met)
    while verdicts[-1].keeps_up and all(each.met for each in verdicts):
        above = Bracket(low=rates[-1], high=_three_figures(2 * rates[-1]))
        rates.append(above.high)
        if not met(above.high):
            rates += above.tried(met)
    return rates


def bracket_of(most_per_s: float) -> Bracket:
    """Return where to search.

    Args:
        most_per_s: requests/s that the service answers in a closed loop.
    """
    return Bracket(low=most_per_s * _LOWEST_SHARE, high=most_per_s * _HIGHEST_SHARE)


def duration_s(bracket: Bracket, requests: int, *, met: bool) -> float:
    """Return how long a search takes that meets the objectives always, or never."""
    return sum(requests / rate for rate in bracket.tried(lambda _: met))


def find_rate(
    probing: LoadRunner,
    loading: LoadRunner,
    objectives: Objectives,
    extent: StopCondition,
    *,
    slots: int | None,
    progress: Progress,
) -> LoadFolder:
    """Search, and return the load with a point for each rate that was tried.

    Args:
        probing: for the closed loop, which is a load of its own.
        extent: with the number of requests at each rate.
        slots: of the service; none where they are not known.

    Raises:
        ArmloadError: the service has ended, or answers nothing even in the closed loop.
    """
    requests = extent.requests or FEWEST_REQUESTS
    clients = slots or _CLIENTS
    probe = extent.model_copy(
        update={"requests": _PROBES_PER_CLIENT * clients, "warmup": 0, "duration_s": None}
    )
    probed, records = probing.point(LoadLevel(concurrency=clients), probe)
    found = metrics_of(probed.load.points[0], records)
    bracket = bracket_of(found.requests_per_s)
    progress.say(_foreseen(found, bracket, clients=clients, requests=requests))

    def decide(rate: float, *, once_more: bool = True) -> RateVerdict:
        try:
            kept, records = loading.point(LoadLevel(rate=rate), extent)
        except NothingSucceededError as error:
            progress.say(error.message)
            return RateVerdict(met=False, keeps_up=False)
        metrics = metrics_of(kept.load.points[-1], records, objectives)
        goodput = metrics.goodput
        assert goodput is not None  # noqa: S101 - there are objectives
        met = is_sustained(goodput, surely=True)
        if is_the_clients_fault(goodput):
            share = percentage(goodput.share_if_on_time - goodput.share)
            progress.say(
                f"Discarded the {rate:g} requests/s result: this client fell behind schedule, and "
                f"{share} of the requests missed the SLO for that. Stop other programs on this "
                "machine."
            )
            if once_more:
                return decide(rate, once_more=False)
        else:
            progress.say(_decided(rate, goodput, met=met))
        return RateVerdict(met=met, keeps_up=metrics.requests_per_s >= _KEEPS_UP_FROM * rate)

    search(bracket, decide)
    assert loading.kept is not None  # noqa: S101 - a bracket is never narrow at first
    return loading.kept


def check_requests(requests: int, warmup: int) -> None:
    """Refuse so few requests that no rate could be shown to be sustained.

    Args:
        warmup: how many of them are excluded.

    Raises:
        UsageError: they are.
    """
    if requests - warmup < FEWEST_REQUESTS:
        after = f" with --warmup {warmup}" if warmup else ""
        raise UsageError(
            f"--requests {requests}{after}: --find-rate needs {FEWEST_REQUESTS} or more at each "
            f"rate{', not counting the warm-up,' if warmup else ''} for 95% confidence.",
            "More requests determine the rate more precisely; the default is 100.",
        )


def _decided(rate: float, goodput: Goodput, *, met: bool) -> str:
    share = f"{rate:g} requests/s: {percentage(goodput.share)} of the requests within the SLO"
    if met:
        return f"{share}, sustained."
    if is_sustained(goodput, surely=False):
        return f"{share}, inconclusive: use more --requests."
    return f"{share}, not sustained."


def _foreseen(found: Metrics, bracket: Bracket, *, clients: int, requests: int) -> str:
    longest_s = duration_s(bracket, requests, met=False)
    shortest_s = duration_s(bracket, requests, met=True)
    rates = len(bracket.tried(lambda _: True))
    return (
        f"{counted(clients, 'client')} at a time: {found.requests_per_s:.3g} requests/s. About "
        f"{rates} rates of {requests} requests each follow, which take {_minutes(shortest_s)} to "
        f"{_minutes(longest_s)} min, and longer while requests queue."
    )


def _three_figures(rate: float) -> float:
    return float(f"{rate:.3g}")


def _minutes(seconds: float) -> str:
    return f"{max(seconds / 60, 0.1):.1f}" if seconds < 600 else f"{seconds / 60:.0f}"
