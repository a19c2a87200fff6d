"""A load as its options describe it: its service, users, rates, times and lengths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from armload.analysis.load.records import Stage
from armload.cli.load_options import DURATION_S, LoadOptions
from armload.core.errors import UsageError
from armload.core.files import require_file, unreadable
from armload.core.progress import Progress
from armload.core.values import counted
from armload.engines.service_plan import ServingPlan
from armload.runs.request import Request
from armload.serving.arrivals import MOST_REQUESTS, Arrivals, read_stages, repeat_seed
from armload.serving.dialects.dialect import Dialect
from armload.serving.dialects.registry import POOLED
from armload.serving.expected import (
    MOST_POINT_S,
    WARMUP_SHARE,
    AloneRequest,
    duration_sentence,
    expected,
    point_duration_sentence,
    sized,
)
from armload.serving.readiness import check_url
from armload.serving.service import target_of_service
from armload.serving.starting import served
from armload.serving.target import LoadLevel, LoadTarget, RateUnit, StopCondition
from armload.serving.tokenizer import ServiceApi
from armload.serving.traces import RequestTrace, read_trace_file
from armload.serving.users import Users, read_seconds
from armload.serving.workload import Lengths, Workload, read_lengths


def users_of(options: LoadOptions) -> Users:
    """Return how users behave, without the prefix that their prompts share.

    Raises:
        UsageError: what was typed is no distribution.
    """
    return Users(
        turns=read_lengths("turns", options.turns) if options.turns else None,
        think=read_seconds("think-time", options.think_time) if options.think_time else None,
        patience=read_seconds("patience", options.patience) if options.patience else None,
        prefix_share=options.prefix_share,
        seed=options.seed,
    )


def levels_of(options: LoadOptions) -> list[LoadLevel]:
    """Return the rates, or the numbers of clients, of a sweep; none where the rate is found."""
    if options.concurrency:
        return [LoadLevel(concurrency=each) for each in options.concurrency]
    unit: RateUnit = "conversations" if options.turns else "requests"
    most = options.max_concurrency
    return [LoadLevel(rate=each, unit=unit, max_concurrency=most) for each in options.rate]


@dataclass(frozen=True, kw_only=True)
class VariedRate:
    """A load whose rate varies.

    Attributes:
        stages: at least one.
        times: of all requests.
        trace: that is replayed; none where the times are drawn.
    """

    stages: tuple[Stage, ...]
    times: Sequence[float]
    trace: RequestTrace | None = None


def varied_rate(options: LoadOptions, stop: StopCondition, arrivals: Arrivals) -> VariedRate | None:
    """Return the times of a load whose rate varies; none of a sweep.

    Raises:
        UsageError: stages cannot be read, or have no request after the warm-up.
        ArmloadError: as for ``read_trace_file``.
    """
    found = None
    if options.replay:
        trace = read_trace_file(
            options.replay,
            time_scale=options.time_scale,
            length_scale=options.length_scale,
            duration_s=stop.duration_s,
            requests=stop.requests,
        )
        found = VariedRate(stages=(trace.stage,), times=trace.times_s, trace=trace)
    elif options.stages:
        stages = read_stages(options.stages)
        found = VariedRate(stages=stages, times=arrivals.staged(stages, seed=options.seed))
    if found is not None and stop.warmup:
        count = sum(time_s <= found.stages[0].end_s for time_s in found.times)
        where = "trace" if found.trace else "first stage"
        _check_warmup(stop.warmup, count, f"{counted(count, 'request')} of the {where}")
    return found


def is_sized(options: LoadOptions) -> bool:
    """Return whether a rate lasts as long as its requests need, since nothing else is asked for."""
    is_free = options.duration is None and options.requests is None
    return bool(options.rate) and is_free and options.arrivals != "seed"


def announce_duration(
    options: LoadOptions,
    stop: StopCondition,
    alone: AloneRequest | None,
    work: Workload,
    users: Users,
    *,
    levels: Sequence[LoadLevel],
    gaps: Arrivals,
    slots: int | None,
    times: Sequence[float],
    lengths: tuple[Lengths, Lengths] | None,
    progress: Progress,
) -> StopCondition:
    """Say how long a load takes, and return how long a point of it lasts.

    Args:
        alone: what one request takes; none where it failed.
        slots: requests that the service answers at a time; none where that is not known.
        times: of all requests, of a load whose rate varies; else none.
        lengths: of synthetic prompts and answers; none where answers have no tokens.
    """
    if is_sized(options):
        stop = sized(stop, alone, work, users)
    if alone is not None:
        lasts = expected(
            *(alone, work, levels, stop, gaps, options.seed),
            slots=min((each for each in (slots, options.max_concurrency) if each), default=None),
            users=users,
            times=times,
        )
        progress.say(duration_sentence(lasts, levels, None if options.data else lengths))
    if stop.warmup_s:
        progress.say(point_duration_sentence(stop))
    return stop


def stop_condition_of(options: LoadOptions) -> StopCondition:
    """Return how long a point lasts, at most.

    Raises:
        UsageError: the warm-up leaves no request.
    """
    count, duration_s = options.requests, options.duration
    if count is not None:
        unit = "conversation" if options.turns else "request"
        _check_warmup(options.warmup or 0, count, counted(count, unit))
    elif is_sized(options):
        duration_s = min(MOST_POINT_S, MOST_REQUESTS / 2 / max(options.rate))
    warms_up = options.rate and options.warmup is None and options.arrivals != "seed"
    is_endless = count is None and not options.stages
    duration_s = duration_s or (DURATION_S if is_endless else None)
    return StopCondition(
        duration_s=duration_s,
        requests=count,
        warmup=options.warmup or 0,
        warmup_s=WARMUP_SHARE * duration_s if warms_up and duration_s and count is None else 0.0,
        timeout_s=options.timeout,
        failures=options.abort_on,
    )


def needed(
    levels: Sequence[LoadLevel],
    stop: StopCondition,
    arrivals: Arrivals,
    seed: int,
    repeats: int,
) -> int | None:
    """Return how many requests the points send in all; none where that is not known before.

    Raises:
        UsageError: a schedule has no requests, too many, or none after the warm-up.
    """
    counts = [
        _count(level, stop, arrivals, repeat_seed(seed, repeat))
        for repeat in range(repeats)
        for level in levels
    ]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _count(level: LoadLevel, stop: StopCondition, arrivals: Arrivals, seed: int) -> int | None:
    if level.rate is None:
        return stop.requests
    count = len(
        arrivals.schedule(level.rate, duration_s=stop.duration_s, requests=stop.requests, seed=seed)
    )
    _check_warmup(stop.warmup, count, f"{counted(count, level.unit[:-1])} at {level}")
    return count


def _check_warmup(warmup: int, count: int, requests: str) -> None:
    if warmup >= count:
        raise UsageError(
            f"--warmup {warmup} would exclude all {requests}.",
            "Give more --requests, a longer --duration, or a smaller --warmup.",
        )


def target_of(url: str, api_key_file: Path | None, dialect: Dialect, model: str) -> LoadTarget:
    """Describe a service that is reached by its address.

    Raises:
        UsageError: that is no address, or there is no such file of a key.
        DiskError: the file of the key cannot be read.
    """
    address = check_url(url)
    key = _key_in(api_key_file) if api_key_file else ""
    return LoadTarget(
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
) -> Iterator[LoadTarget]:
    """Serve a model on a board within the block, or use the service that runs there.

    Raises:
        ArmloadError: it cannot be served.
    """
    usual = None
    if dialect.name in POOLED:
        usual = ServingPlan(embeddings=POOLED[dialect.name])
        if plan is not None and plan.embeddings is None:
            plan = plan.model_copy(update={"embeddings": usual.embeddings})
    with served(request, model, plan, progress, usual=usual) as service:
        if service.was_running:
            progress.say(f"{service.board} already serves {service.model}: {service.run}")
        yield target_of_service(service, dialect)


def _key_in(path: Path) -> str:
    require_file(path, "file of an API key", "Give another one with --api-key-file.")
    try:
        text = path.read_text(encoding="utf-8").strip()
    except UnicodeDecodeError:
        text = ""
    except OSError as error:
        raise unreadable(path, error) from error
    if not text or not text.isascii() or len(text.split()) != 1:
        raise UsageError(f"{path}: must contain only an API key.")
    return text
