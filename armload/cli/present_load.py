"""A load: its options as values, and its figures laid before a person or a program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

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
from armload.runs.request import EngineSource, Request, Waiting
from armload.serving.arrivals import Arrivals
from armload.serving.dialects.dialect import Dialect
from armload.serving.exports import export
from armload.serving.load_runner import LoadRunner
from armload.serving.loads import LoadFolder
from armload.serving.readiness import check_url
from armload.serving.service import target_of_service
from armload.serving.starting import served
from armload.serving.target import LoadLevel, LoadTarget, StopCondition
from armload.serving.tokenizer import ServiceApi


def check_combination(options: LoadOptions) -> None:
    """Refuse options that contradict each other, or would do nothing.

    Raises:
        UsageError: there is one.
    """
    if options.find_rate:
        _check_find_rate(options)
    elif options.max_time is not None:
        raise UsageError("--max-time is an option of --find-rate.", "Use --duration.")
    elif bool(options.rate) == bool(options.concurrency):
        raise UsageError(
            "Give either --rate or --concurrency, or let --find-rate find the highest rate.",
            "Example: --rate 0.5,1,2 (requests per second) or --concurrency 1,2,4 (clients)",
        )
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
    if options.max_concurrency is not None and not options.rate:
        raise UsageError(
            "--max-concurrency is an option of --rate.",
            "Use --concurrency for clients that wait for their answers.",
        )
    if options.url:
        options.refuse(
            {
                *("board", "type"),
                *EngineSource.model_fields,
                *Waiting.model_fields,
                *ServiceSettings.model_fields,
            },
            "--url, which names a service that is already running",
            "Remove it.",
        )
    elif options.api_key_file:
        raise UsageError("--api-key-file is an option of --url.", "Remove it.")


def _check_find_rate(options: LoadOptions) -> None:
    options.refuse(
        ("rate", "concurrency", "duration", "requests", "warmup", "repeats"),
        "--find-rate, which chooses rates, durations and warm-ups itself",
        "Use --max-time to end it earlier.",
    )
    if not options.slo:
        raise UsageError(
            "--find-rate needs the latencies that count: --slo is missing.",
            "Example: --find-rate --slo ttft=2s,tpot=500ms",
        )


def paces_of(options: LoadOptions) -> list[LoadLevel]:
    """Return the rates, or the numbers of clients, of a sweep; none where the rate is found."""
    if options.concurrency:
        return [LoadLevel(concurrency=each) for each in options.concurrency]
    most = options.max_concurrency
    return [LoadLevel(rate=each, max_concurrency=most) for each in options.rate]


def extent_of(options: LoadOptions) -> StopCondition:
    """Return how long a point lasts.

    Raises:
        UsageError: the warm-up leaves no request.
    """
    count = options.requests
    if count is not None:
        _check_warmup(options.warmup, count, counted(count, "request"))
    return StopCondition(
        duration_s=options.duration or (DURATION_S if count is None else None),
        requests=count,
        warmup=options.warmup,
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
    _check_warmup(extent.warmup, count, f"the {counted(count, 'request')} at {pace}")
    return count


def _check_warmup(warmup: int, count: int, requests: str) -> None:
    if warmup >= count:
        raise UsageError(
            f"--warmup {warmup} leaves none of {requests} to measure.",
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
        again = "to search again from the start" if kept.load.finds_rate else "for a whole load"
        return InterruptionError(
            "Interrupted. The records of all requests are kept.",
            f"See them again: armload show {kept.load.id}. Run the command again {again}.",
        )
    if probe is not None:
        return InterruptionError(
            "Interrupted. The records of the probe are kept; no rate was tried yet.",
            f"See them: armload show {probe.load.id}. Run the command again to start over.",
        )
    return InterruptionError("Interrupted. No request of the load was sent yet.")


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
