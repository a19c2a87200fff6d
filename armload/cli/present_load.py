"""A load: its options as values, and its figures laid before a person or a program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from armload.analysis.load.records import Stage, read_objectives
from armload.cli import terminal
from armload.cli.streams import show_document
from armload.cli.verbs.load import DURATION_S, LoadOptions
from armload.core.errors import InterruptionError, UsageError
from armload.core.files import require_file, unreadable
from armload.core.progress import Progress
from armload.core.values import counted
from armload.engines.service_plan import ServiceSettings, ServingPlan
from armload.report.layout import whole
from armload.report.load.loaded import LoadDocument, LoadView, loaded_of
from armload.report.load.page import load_page
from armload.report.load.table import load_view
from armload.report.pages import write_page
from armload.runs.request import EngineSource, Metering, Request, Waiting
from armload.serving.arrivals import MOST_REQUESTS, Arrivals, read_stages
from armload.serving.dialects.dialect import Dialect
from armload.serving.dialects.openai import OpenAiEmbeddings
from armload.serving.expected import (
    MOST_POINT_S,
    WARMUP_SHARE,
    AloneRequest,
    expected,
    point_told,
    sized,
    told,
)
from armload.serving.exports import export
from armload.serving.load_runner import LoadRunner
from armload.serving.loads import LoadFolder
from armload.serving.readiness import check_url
from armload.serving.service import target_of_service
from armload.serving.starting import served
from armload.serving.target import LoadLevel, LoadTarget, RateUnit, StopCondition
from armload.serving.tokenizer import ServiceApi
from armload.serving.traces import RequestTrace, read_trace_file
from armload.serving.users import Users, read_seconds
from armload.serving.workload import Lengths, Workload, read_lengths, synthetic

_NUMBER_OF_PREFIX = -2
"""Of the synthetic request whose prompt it is; those that are sent have others."""


def check_combination(options: LoadOptions) -> None:
    """Refuse options that contradict each other, or would do nothing.

    Raises:
        UsageError: there is one.
    """
    if options.find_rate:
        _check_find_rate(options)
    elif options.max_time is not None:
        raise UsageError("--max-time is an option of --find-rate.", "Use --duration.")
    elif sum(map(bool, (options.rate, options.concurrency, options.stages, options.replay))) != 1:
        raise UsageError(
            "Give one of --rate, --concurrency, --stages and --replay, or let --find-rate find the "
            "highest rate.",
            "Example: --rate 0.5,1,2 (requests per second) or --concurrency 1,2,4 (clients)",
        )
    _check_varied(options)
    _check_embeddings(options)
    _check_users(options)
    if options.data and options.prompt_tokens:
        raise UsageError("--data cannot be combined with --prompt-tokens.", "Remove one.")
    if options.data and options.stop_at_end:
        raise UsageError(
            "--stop-at-end is for synthetic answers; those to --data always stop there.",
            "Remove it.",
        )
    if options.concurrency and options.arrivals:
        raise UsageError(
            "--arrivals is an option of --rate. With --concurrency, each client sends its next "
            "request when it has its answer.",
            "Remove it.",
        )
    if options.max_concurrency is not None and (options.concurrency or options.find_rate):
        raise UsageError(
            "--max-concurrency is an option of --rate, --stages and --replay.",
            "Use --concurrency for clients that wait for their answers.",
        )
    if options.url:
        options.refuse(
            {
                *("board", "type"),
                *EngineSource.model_fields,
                *Waiting.model_fields,
                *Metering.model_fields,
                *ServiceSettings.model_fields,
            },
            "--url, which names a service that is already running",
            "Remove it.",
        )
    elif options.api_key_file:
        raise UsageError("--api-key-file is an option of --url.", "Remove it.")


def _check_varied(options: LoadOptions) -> None:
    if options.turns and (options.stages or options.replay):
        raise UsageError(
            "--turns cannot be combined with --stages or --replay: a later turn waits for the "
            "previous answer, and could fall into another stage.",
            "Use --rate or --concurrency.",
        )
    if options.stages:
        options.refuse(
            ("duration", "requests", "repeats"),
            "--stages, which sets the length of each stage",
            "Remove it.",
        )
    if options.replay:
        options.refuse(
            ("data", "prompt_tokens", "n_predict", "arrivals", "repeats"),
            "--replay, whose trace sets times and lengths",
            "Use --time-scale and --length-scale to change them.",
        )
    elif named := options.given(("time_scale", "length_scale")):
        raise UsageError(f"{', '.join(named)}: only for --replay.", "Remove it.")


def _check_embeddings(options: LoadOptions) -> None:
    if options.dialect != OpenAiEmbeddings.name:
        return
    options.refuse(
        ("n_predict", "stop_at_end", "json_schema", "turns"),
        f"--dialect {OpenAiEmbeddings.name}, which generates no tokens",
        "Remove it.",
    )
    objectives = read_objectives(options.slo)
    if objectives and (objectives.ttft_s or objectives.tpot_s):
        raise UsageError(
            "--slo: an embedding has neither a first token nor a time per token.",
            "Use e2e, such as --slo e2e=500ms.",
        )


def _check_users(options: LoadOptions) -> None:
    if options.think_time and not options.turns:
        raise UsageError(
            "--think-time, the pause between turns, needs --turns.",
            "Example: --turns 4 --think-time 5",
        )
    if "prefix_share" in options.model_fields_set and options.prefix_tokens is None:
        raise UsageError(
            "--prefix-share needs --prefix-tokens, the length of the prefix.",
            "Example: --prefix-tokens 256 --prefix-share 0.8",
        )


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


def with_prefix(
    users: Users,
    tokens: int | None,
    target: LoadTarget,
    api: ServiceApi,
    progress: Progress,
) -> Users:
    """Return users whose prompts share a prefix of so many tokens; none for no prefix.

    Where prompts repeat, and the service caches none, that is said.

    Raises:
        UsageError: its vocabulary has too few common words.
    """
    if tokens is not None:
        length = Lengths(kind="constant", low=tokens, high=tokens)
        words = synthetic(
            prompt=length,
            answer=None,
            stops_at_end=False,
            seed=users.seed,
            api=api,
            progress=progress,
        )
        prefix = words.ask(_NUMBER_OF_PREFIX).prompt
        users = users.model_copy(
            update={"prefix": prefix, "prefix_length": f"{tokens} {words.unit}"}
        )
    if users.repeat_prompts and (target.settings or {}).get("prompt_cache_bytes") == 0:
        progress.say(
            "The service has no prompt cache: text that prompts repeat is processed again each "
            "time. To cache it, serve the model with --prompt-cache."
        )
    return users


def _check_find_rate(options: LoadOptions) -> None:
    options.refuse(
        ("turns", "patience"),
        "--find-rate, whose statistics assume independent requests that users never abandon",
        "Use --rate.",
    )
    options.refuse(
        (
            *("rate", "concurrency", "stages", "replay"),
            *("duration", "requests", "warmup", "repeats"),
        ),
        "--find-rate, which chooses rates, durations and warm-ups itself",
        "Use --max-time to end it earlier.",
    )
    if not options.slo:
        raise UsageError(
            "--find-rate needs --slo, the latencies to meet.",
            "Example: --find-rate --slo ttft=2s,tpot=500ms",
        )


def paces_of(options: LoadOptions) -> list[LoadLevel]:
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


def varied_rate(
    options: LoadOptions, extent: StopCondition, arrivals: Arrivals
) -> VariedRate | None:
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
            duration_s=extent.duration_s,
            requests=extent.requests,
        )
        found = VariedRate(stages=(trace.stage,), times=trace.times_s, trace=trace)
    elif options.stages:
        stages = read_stages(options.stages)
        found = VariedRate(stages=stages, times=arrivals.staged(stages, seed=options.seed))
    if found is not None and extent.warmup:
        count = sum(time_s <= found.stages[0].end_s for time_s in found.times)
        where = "trace" if found.trace else "first stage"
        _check_warmup(extent.warmup, count, f"the {counted(count, 'request')} of the {where}")
    return found


def is_sized(options: LoadOptions) -> bool:
    """Return whether a rate lasts as long as its requests need, since nothing else is asked for."""
    is_free = options.duration is None and options.requests is None
    return bool(options.rate) and is_free and options.arrivals != "seed"


def announced(
    options: LoadOptions,
    extent: StopCondition,
    alone: AloneRequest | None,
    work: Workload,
    users: Users,
    *,
    paces: Sequence[LoadLevel],
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
        extent = sized(extent, alone, work, users)
    if alone is not None:
        lasts = expected(
            *(alone, work, paces, extent, gaps, options.seed),
            slots=min((each for each in (slots, options.max_concurrency) if each), default=None),
            users=users,
            times=times,
        )
        progress.say(told(lasts, paces, None if options.data else lengths))
    if extent.warmup_s:
        progress.say(point_told(extent))
    return extent


def extent_of(options: LoadOptions) -> StopCondition:
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
    paces: Sequence[LoadLevel],
    extent: StopCondition,
    arrivals: Arrivals,
    seed: int,
    repeats: int,
) -> int | None:
    """Return how many requests the points send in all; none where that is not known before.

    Raises:
        UsageError: a schedule has no requests, too many, or none after the warm-up.
    """
    counts = [
        _count(pace, extent, arrivals, seed + repeat) for repeat in range(repeats) for pace in paces
    ]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _count(pace: LoadLevel, extent: StopCondition, arrivals: Arrivals, seed: int) -> int | None:
    if pace.rate is None:
        return extent.requests
    count = len(
        arrivals.schedule(
            pace.rate, duration_s=extent.duration_s, requests=extent.requests, seed=seed
        )
    )
    _check_warmup(extent.warmup, count, f"the {counted(count, pace.unit[:-1])} at {pace}")
    return count


def _check_warmup(warmup: int, count: int, requests: str) -> None:
    if warmup >= count:
        raise UsageError(
            f"--warmup {warmup} would exclude all of {requests}.",
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
    if dialect.name == OpenAiEmbeddings.name:
        usual = ServingPlan(embeddings="model")
        if plan is not None and plan.embeddings is None:
            plan = plan.model_copy(update={"embeddings": usual.embeddings})
    with served(request, model, plan, progress, usual=usual) as service:
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
        raise UsageError(f"{path}: must contain only an API key.")
    return text


def load_and_present(
    loading: LoadRunner,
    run: Callable[[], object],
    formats: Sequence[str],
    *,
    probing: LoadRunner,
    as_json: bool,
) -> None:
    """Run all points and show their figures; after a failure, or Ctrl-C, those that there are.

    Args:
        run: runs them.
        probing: what a search begins with.

    Raises:
        ArmloadError: the load ended early.
    """
    try:
        run()
    except KeyboardInterrupt:
        raise _interruption(loading.kept, probing.kept) from None
    finally:
        _present_kept(loading, formats, as_json=as_json)


def _interruption(kept: LoadFolder | None, probe: LoadFolder | None) -> InterruptionError:
    if kept is not None:
        again = "to start the search over" if kept.load.finds_rate else "to start over"
        return InterruptionError(
            "Interrupted. The records of all requests are kept.",
            f"To show them: armload show {kept.load.id}. Run the command again {again}.",
        )
    if probe is not None:
        return InterruptionError(
            "Interrupted. The records of the probe are kept; no rate was tried yet.",
            f"To show them: armload show {probe.load.id}. Run the command again to start over.",
        )
    return InterruptionError("Interrupted before any request was sent.")


def present(kept: LoadFolder, files: Sequence[Path] = (), *, as_json: bool) -> None:
    """Show the figures of a load, and write its page where its folder can be written.

    Args:
        files: that it was exported to.

    Raises:
        DataError: a record was modified.
    """
    loaded = loaded_of(kept)
    page = _written(loaded, kept.folder) if loaded.points else None
    if as_json:
        show_document(LoadDocument.of(loaded))
        return
    if loaded.points:
        terminal.show(load_view(loaded))
        terminal.show("")
    places = [("load", kept.folder), *(("export", each) for each in files)]
    for name, path in (*places, *([("page", page)] if page else [])):
        terminal.show(whole(f"{name:6}  {path}"))


def _written(loaded: LoadView, folder: Path) -> Path | None:
    try:
        return write_page(load_page(loaded), folder)
    except OSError as error:
        terminal.progress().say(f"The page was not written: {folder}: {error.strerror or error}.")
        return None


def _present_kept(loading: LoadRunner, formats: Sequence[str], *, as_json: bool) -> None:
    kept = loading.kept
    if kept is None or not kept.load.points:
        return
    present(kept, export(kept, formats, kept.load.objectives), as_json=as_json)
