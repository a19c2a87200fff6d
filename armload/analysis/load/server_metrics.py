"""What a server says of itself under load, in Prometheus' text format, and in short.

The format is that of Prometheus' "Exposition formats", and OpenMetrics as far as it is alike.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Literal

from armload.core.values import Value

MetricKind = Literal["counter", "gauge"]

MOST_SERIES = 200
"""Of one scrape that are kept, the first ones: a server may give one for each of its users."""

_BUSY = ("llamacpp:requests_processing", "vllm:num_requests_running")
_WAITING = ("llamacpp:requests_deferred", "vllm:num_requests_waiting")

_SAMPLE = re.compile(r"([A-Za-z_:][\w:]*)(\{.*\})?[ \t]+(\S+)(?:[ \t]+[-+.\d]+)?(?:[ \t]+#.*)?")
_TYPE = re.compile(r"#[ \t]+TYPE[ \t]+(\S+)[ \t]+(\w+)")
_SUMS = ("_sum", "_count")
_COUNTED = ("_total", *_SUMS)
_LEFT_OUT = ("_bucket", "_created")


class ServerSample(Value):
    """One scrape; series are named as the server names them, with their labels.

    Attributes:
        at_client_s: on the client's monotonic clock.
        counters: that only grow, until the server restarts.
        gauges: that go up and down.
    """

    at_client_s: float
    counters: dict[str, float]
    gauges: dict[str, float]

    @property
    def busy(self) -> int | None:
        """Requests in a slot; none where the server does not say."""
        return self._first_gauge(_BUSY)

    @property
    def waiting(self) -> int | None:
        """Requests that wait for a slot; none likewise."""
        return self._first_gauge(_WAITING)

    def _first_gauge(self, names: Iterable[str]) -> int | None:
        known = map(self.gauge, names)
        return next((round(each) for each in known if each is not None), None)

    def gauge(self, name: str) -> float | None:
        """Return the sum of a gauge over its labels; none where the server has none."""
        found = [value for key, value in self.gauges.items() if key.partition("{")[0] == name]
        return sum(found) if found else None


class ServerMetric(Value):
    """One series over a point, warm-up included.

    Attributes:
        name: the server's own, with its labels.
        increase, per_s: of a counter.
        mean, low, high: of a gauge, over the scrapes.
    """

    name: str
    kind: MetricKind
    increase: float | None = None
    per_s: float | None = None
    mean: float | None = None
    low: float | None = None
    high: float | None = None


def read_metrics(text: str, at_client_s: float) -> ServerSample | None:
    """Read a scrape; none where the text holds no metrics, such as a page.

    Buckets and quantiles are left out: the records of the requests say more.
    """
    if text.lstrip().startswith("<"):
        return None
    types = dict(_TYPE.findall(text))
    series: dict[MetricKind, dict[str, float]] = {"counter": {}, "gauge": {}}
    count = 0
    for match in map(_SAMPLE.fullmatch, map(str.strip, text.splitlines())):
        if match is None or match[1].endswith(_LEFT_OUT) or count == MOST_SERIES:
            continue
        name, labels, value = match[1], match[2] or "", _number(match[3])
        kind = _kind(name, types)
        if value is not None and kind is not None:
            count += name + labels not in series[kind]
            series[kind][name + labels] = value
    if not count:
        return None
    return ServerSample(at_client_s=at_client_s, counters=series["counter"], gauges=series["gauge"])


def server_metrics(samples: Sequence[ServerSample]) -> tuple[ServerMetric, ...]:
    """Return each series in short, in the server's order; nothing of fewer than two scrapes."""
    if len(samples) < 2:
        return ()
    found = [_counter(name, samples) for name in _names(each.counters for each in samples)]
    found += [_gauge(name, samples) for name in _names(each.gauges for each in samples)]
    return tuple(found)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _kind(name: str, types: dict[str, str]) -> MetricKind | None:
    declared = types.get(name) or types.get(name.removesuffix("_total"))
    if declared is None and any(types.get(name.removesuffix(each)) for each in _SUMS):
        return "counter"
    if declared in ("histogram", "summary"):  # its quantiles
        return None
    if declared in ("counter", "gauge"):
        return "counter" if declared == "counter" else "gauge"
    return "counter" if name.endswith(_COUNTED) else "gauge"


def _names(series: Iterable[dict[str, float]]) -> list[str]:
    return list(dict.fromkeys(name for each in series for name in each))


def _counter(name: str, samples: Sequence[ServerSample]) -> ServerMetric:
    known = [(each.at_client_s, each.counters[name]) for each in samples if name in each.counters]
    # After a restart a counter begins at 0.
    increase = sum(
        after - before if after >= before else after for (_, before), (_, after) in pairwise(known)
    )
    seconds = known[-1][0] - known[0][0]
    return ServerMetric(
        name=name,
        kind="counter",
        increase=increase,
        per_s=increase / seconds if seconds > 0 else None,
    )


def _gauge(name: str, samples: Sequence[ServerSample]) -> ServerMetric:
    values = [each.gauges[name] for each in samples if name in each.gauges]
    return ServerMetric(
        name=name, kind="gauge", mean=fmean(values), low=min(values), high=max(values)
    )
