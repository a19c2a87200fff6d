"""What a person types for a load, as values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from armload.cli.numbers import above_0, whole_number
from armload.core.disk import require_file, unreadable
from armload.core.errors import UsageError
from armload.core.progress import Progress
from armload.core.values import counted
from armload.engines.server import ServingPlan
from armload.runs.session import Request
from armload.serving.arrivals import MOST_REQUESTS, Arrivals
from armload.serving.dialects.dialect import Dialect
from armload.serving.find_rate import check_requests
from armload.serving.readiness import check_url
from armload.serving.service import target_of_service
from armload.serving.starting import served
from armload.serving.target import Extent, Pace, Target
from armload.serving.tokenizer import ServiceApi

DURATION_S = 60.0

_LEAST_PER_S, _MOST_PER_S = 1e-6, 10_000
_MOST_CLIENTS = 10_000


def refuse_without_effect(
    *,
    url: str,
    api_key_file: str,
    is_built: bool,
    concurrency: str,
    arrivals: str,
    data: str,
    prompt_tokens: str,
    stop_at_end: bool,
) -> None:
    """Refuse options that would do nothing beside another one; an empty text was not given.

    Args:
        is_built: an option says how the server is built, or how long to wait for its board.

    Raises:
        UsageError: there is one.
    """
    if data and prompt_tokens:
        raise UsageError("--data and --prompt-tokens exclude each other.", "Leave one out.")
    if data and stop_at_end:
        raise UsageError(
            "--stop-at-end is for synthetic answers; those to --data always stop there.",
            "Leave it out.",
        )
    if concurrency and arrivals:
        raise UsageError(
            "--arrivals is an option of --rate. With --concurrency, each client sends its next "
            "request when it has its answer.",
            "Leave it out.",
        )
    if url and is_built:
        raise UsageError(
            "--url names a service that runs, and excludes --source, --ref, --compiler, --on and "
            "--wait.",
            "Leave them out.",
        )
    if api_key_file and not url:
        raise UsageError("--api-key-file is an option of --url.", "Leave it out.")


def paces_of(rate: str, concurrency: str) -> list[Pace]:
    """Read the rates, or the numbers of clients, of a sweep.

    Raises:
        UsageError: neither or both are given, or one makes no sense.
    """
    if bool(rate) == bool(concurrency):
        raise UsageError(
            "Give either --rate or --concurrency, or let --find-rate find the highest rate.",
            "Example: --rate 0.5,1,2 (requests per second) or --concurrency 1,2,4 (clients)",
        )
    if concurrency:
        return [Pace(concurrency=_clients(each)) for each in concurrency.split(",")]
    return [Pace(rate=per_s(each)) for each in rate.split(",")]


def check_find_rate(*, paces: str, duration: str, slo: str, requests: str, warmup: str) -> None:
    """Refuse a search for a rate that has nothing to find, or cannot.

    Raises:
        UsageError: it has no objectives, or is given a rate, a duration, or too few requests.
    """
    if paces or duration:
        raise UsageError(
            "--find-rate chooses rates and durations itself, and excludes --rate, --concurrency "
            "and --duration.",
            "Use --requests for how many requests each rate has.",
        )
    if not slo:
        raise UsageError(
            "--find-rate needs the latencies that count: --slo is missing.",
            "Example: --find-rate --slo ttft=2s,tpot=500ms",
        )
    check_requests(whole_number("requests", requests) or 0, whole_number("warmup", warmup) or 0)


def extent_of(duration: str, requests: str, warmup: str, timeout: str) -> Extent:
    """Read how long a point lasts.

    Raises:
        UsageError: a number makes no sense.
    """
    count = whole_number("requests", requests, least=1, most=MOST_REQUESTS)
    duration_s = above_0("duration", duration) if duration else None
    if duration_s is None and count is None:
        duration_s = DURATION_S
    excluded = whole_number("warmup", warmup) or 0
    if count is not None:
        _check_warmup(excluded, count, counted(count, "request"))
    return Extent(
        duration_s=duration_s,
        requests=count,
        warmup=excluded,
        timeout_s=above_0("timeout", timeout),
    )


def needed(paces: Sequence[Pace], extent: Extent, arrivals: Arrivals, seed: int) -> int | None:
    """Return how many requests the points send in all; none where that is not known before.

    Raises:
        UsageError: a schedule has no requests, too many, or none after the warm-up.
    """
    counts = [_count(pace, extent, arrivals, seed) for pace in paces]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _count(pace: Pace, extent: Extent, arrivals: Arrivals, seed: int) -> int | None:
    if pace.rate is None:
        return extent.requests
    count = len(
        arrivals.schedule(
            pace.rate, duration_s=extent.duration_s, requests=extent.requests, seed=seed
        )
    )
    _check_warmup(extent.warmup, count, f"the {counted(count, 'request')} at {pace}")
    return count


def _check_warmup(warmup: int, count: int, requests: str) -> None:
    if warmup >= count:
        raise UsageError(
            f"--warmup {warmup} leaves none of {requests} to measure.",
            "Give more --requests, a longer --duration, or a smaller --warmup.",
        )


def target_of(url: str, api_key_file: str, dialect: Dialect, model: str) -> Target:
    """Describe a service that is reached by its address.

    Raises:
        UsageError: that is no address, or there is no such file of a key.
        DiskError: the file of the key cannot be read.
    """
    address = check_url(url)
    key = _key_in(Path(api_key_file)) if api_key_file else ""
    return Target(
        url=address,
        api_key=key,
        model=model or ServiceApi(address, key).model(),
        dialect=dialect,
    )


@contextmanager
def target_on_board(
    request: Request,
    model: str,
    plan: ServingPlan | None,
    dialect: Dialect,
    progress: Progress,
) -> Iterator[Target]:
    """Serve a model on a board within the block, or use the service that runs there.

    Raises:
        ArmloadError: it cannot be served.
    """
    with served(request, model, plan, progress) as service:
        if service.was_running:
            progress.say(f"{service.board} serves {service.model} already: {service.run}")
        yield target_of_service(service, dialect)


def _key_in(path: Path) -> str:
    require_file(path, "file of an API key", "Give another one with --api-key-file.")
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        if isinstance(error, OSError):
            raise unreadable(path, error) from error
        text = ""
    if not text or not text.isascii() or len(text.split()) != 1:
        raise UsageError(f"{path}: must hold an API key, and nothing else.")
    return text


def per_s(text: str) -> float:
    """Read a rate of requests.

    Raises:
        UsageError: it is none, or too low or too high to be kept.
    """
    rate = above_0("rate", text)
    if not _LEAST_PER_S <= rate <= _MOST_PER_S:
        raise UsageError(
            f"--rate {text!a}: must be {_LEAST_PER_S:g} to {_MOST_PER_S:,} requests per second."
        )
    return rate


def _clients(text: str) -> int:
    clients = whole_number("concurrency", text, least=1, most=_MOST_CLIENTS)
    if clients is None:
        raise UsageError("--concurrency: one of the numbers is missing.", "Example: 1,2,4")
    return clients
