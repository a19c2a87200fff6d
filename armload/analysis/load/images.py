"""The time to the first token by the size of the image that was asked about."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from statistics import median

from armload.analysis.load.latency import ttft_s
from armload.analysis.load.request_columns import EndedRequest
from armload.core.values import Count, Finite, Value


class ImageLatency(Value):
    """Answered requests with images of one size.

    Attributes:
        width, height: in pixels.
        requests: that were answered and have a first token; none of a warm-up.
        prompt_tokens: the median, with those of the image; none where the server does not count.
        ttft_s: the median time to the first token.
        least_s, most_s: the shortest and the longest.
    """

    width: Count
    height: Count
    requests: Count
    prompt_tokens: Finite | None
    ttft_s: Finite
    least_s: Finite
    most_s: Finite

    @property
    def size(self) -> str:
        return f"{self.width} x {self.height}"


def by_image_size(requests: Iterable[EndedRequest]) -> tuple[ImageLatency, ...]:
    """Return the latencies of each size, the fewest pixels first; empty without images."""
    times: dict[tuple[int, int], list[float]] = defaultdict(list)
    tokens: dict[tuple[int, int], list[int]] = defaultdict(list)
    for each in requests:
        width, height, first_s = each.image_width, each.image_height, ttft_s(each)
        if each.is_warmup or each.outcome != "ok" or width is None or height is None:
            continue
        if first_s is not None:
            times[width, height].append(first_s)
            if each.prompt_tokens is not None:
                tokens[width, height].append(each.prompt_tokens)
    return tuple(
        ImageLatency(
            width=size[0],
            height=size[1],
            requests=len(times[size]),
            prompt_tokens=median(tokens[size]) if tokens[size] else None,
            ttft_s=median(times[size]),
            least_s=min(times[size]),
            most_s=max(times[size]),
        )
        for size in sorted(times, key=lambda size: (size[0] * size[1], size))
    )
