"""What a person types for a load, as values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from armload.cli.numbers import amount, whole_number
from armload.core.disk import unreadable
from armload.core.errors import UsageError
from armload.serving.arrivals import Arrivals
from armload.serving.dialects.every import dialect_named
from armload.serving.readiness import check_url
from armload.serving.target import Extent, Pace, Target
from armload.serving.tokenizer import ServiceApi

DURATION_S = 60.0

_MOST_PER_S = 10_000
_MOST_CLIENTS = 10_000


def paces_of(rate: str, concurrency: str) -> list[Pace]:
    """Read the rates, or the numbers of clients, of a sweep.

    Raises:
        UsageError: neither or both are given, or one makes no sense.
    """
    if bool(rate) == bool(concurrency):
        raise UsageError(
            "Give either --rate or --concurrency.",
            "Example: --rate 0.5,1,2 (requests per second) or --concurrency 1,2,4 (clients)",
        )
    if concurrency:
        return [Pace(concurrency=_clients(each)) for each in concurrency.split(",")]
    return [Pace(rate=_per_s(each)) for each in rate.split(",")]


def extent_of(duration: str, requests: str, warmup: str, timeout: str) -> Extent:
    """Read how long a point lasts.

    Raises:
        UsageError: a number makes no sense.
    """
    count = whole_number("requests", requests)
    duration_s = _above_0("duration", duration) if duration else None
    if count == 0:
        raise UsageError(f"--requests {requests!a}: must be a whole number of 1 or more.")
    if duration_s is None and count is None:
        duration_s = DURATION_S
    excluded = whole_number("warmup", warmup) or 0
    if count is not None and excluded >= count:
        raise UsageError(
            f"--warmup {excluded} leaves none of {count} requests to measure.",
            "Give more --requests, or a smaller --warmup.",
        )
    return Extent(
        duration_s=duration_s,
        requests=count,
        warmup=excluded,
        timeout_s=_above_0("timeout", timeout),
    )


def needed(paces: Sequence[Pace], extent: Extent, arrivals: Arrivals, seed: int) -> int | None:
    """Return how many requests the points send in all; none where that is not known before.

    Raises:
        UsageError: a schedule has no requests, or too many.
    """
    counts = [
        extent.requests
        if pace.rate is None
        else len(
            arrivals.schedule(
                pace.rate, duration_s=extent.duration_s, requests=extent.requests, seed=seed
            )
        )
        for pace in paces
    ]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def target_of(url: str, api_key_file: str, dialect: str, model: str) -> Target:
    """Describe a service that is reached by its address.

    Raises:
        UsageError: there is no address, or it is none; or there is no such dialect.
        DiskError: the file of the key cannot be read.
    """
    if not url:
        raise UsageError("--url is missing.", "Example: --url http://127.0.0.1:8080")
    spoken, address = dialect_named(dialect), check_url(url)
    key = _key_in(Path(api_key_file)) if api_key_file else ""
    return Target(
        url=address,
        api_key=key,
        model=model or ServiceApi(address, key).model(),
        dialect=spoken,
    )


def _key_in(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        if isinstance(error, OSError):
            raise unreadable(path, error) from error
        text = ""
    if not text or not text.isascii() or len(text.split()) != 1:
        raise UsageError(f"{path}: must hold an API key, and nothing else.")
    return text


def _per_s(text: str) -> float:
    rate = _above_0("rate", text)
    if rate > _MOST_PER_S:
        raise UsageError(f"--rate {text!a}: must be at most {_MOST_PER_S:,} requests per second.")
    return rate


def _clients(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= _MOST_CLIENTS:
        raise UsageError(
            f"--concurrency {text!a}: must be a whole number from 1 to {_MOST_CLIENTS:,}."
        )
    return int(text)


def _above_0(option: str, text: str) -> float:
    number = amount(option, text)
    if not 0 < number < math.inf:
        raise UsageError(f"--{option} {text!a}: must be a number above 0.")
    return number
