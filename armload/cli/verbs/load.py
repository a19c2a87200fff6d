"""``load``: load on a service, and the latencies that its requests have."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING

from armload.cli.error_output import system_error
from armload.cli.load_options import N_PREDICT, PROMPT_TOKENS, LoadOptions
from armload.cli.options import models_in
from armload.cli.verb import verb
from armload.core.defaults import DEMO, VIRTUAL
from armload.core.errors import ArmloadError
from armload.core.workspace import loads_folder
from armload.engines.service_plan import ServiceSettings

if TYPE_CHECKING:
    from armload.report.result import Result
    from armload.serving.load_runner import LoadRunner


@verb(LoadOptions, keeps=True, results=(loads_folder,))
def load(options: LoadOptions) -> Generator[Result, None, None]:
    """Put a service under load, and record the outcome of each request.

    Requests are sent at random times (--rate), or by clients that wait for their answers
    (--concurrency); several rates or numbers of clients make a sweep. Latency counts from
    the scheduled time of each request.
    Example: armload load --board dayu200 --model m.gguf --rate 1,2 --slo ttft=2s
    """
    from contextlib import AbstractContextManager, nullcontext

    from armload.analysis.load.records import read_objectives
    from armload.boards.board import load_board
    from armload.cli import terminal
    from armload.cli.load_checks import check_combination
    from armload.cli.load_plan import (
        announce_duration,
        levels_of,
        needed,
        stop_condition_of,
        target_of,
        target_on_board,
        users_of,
        varied_rate,
    )
    from armload.engines.service_plan import ServingPlan
    from armload.models.find_projector import AUTO
    from armload.runs.request import Request
    from armload.services.talking import target_installed
    from armload.serving.arrivals import read_arrivals
    from armload.serving.dialects.dialect import CompletionRequest
    from armload.serving.dialects.registry import dialect_named
    from armload.serving.expected import measure_alone
    from armload.serving.exports import read_formats
    from armload.serving.find_rate import find_rate as search
    from armload.serving.hints import hints_about
    from armload.serving.load_runner import LoadRunner
    from armload.serving.pictured import Pictured, read_images
    from armload.serving.planning import serving_plan
    from armload.serving.readiness import check_service
    from armload.serving.request_defaults import WithDefaults, read_defaults
    from armload.serving.target import LoadTarget
    from armload.serving.tokenizer import ServiceApi
    from armload.serving.traces import replayed
    from armload.serving.users import with_prefix
    from armload.serving.workload import Workload, check_data, read_lengths, workload_of

    options = check_combination(options)
    url, data, number = options.url, options.data, options.seed
    levels = levels_of(options)
    stop = stop_condition_of(options)
    gaps = read_arrivals(options.arrivals or "poisson")
    objectives = read_objectives(options.slo)
    formats = read_formats(options.export, has_rates=bool(options.rate) or options.find_rate)
    prompt = read_lengths("prompt-tokens", options.prompt_tokens or PROMPT_TOKENS)
    answer = read_lengths("n-predict", options.n_predict) if options.n_predict else None
    varied = varied_rate(options, stop, gaps)
    most: int | None = None
    if varied is not None:
        most = len(varied.times)
    elif not (options.find_rate or options.turns):
        most = needed(levels, stop, gaps, number, options.repeats)
    trace = varied.trace if varied else None
    defaults = read_defaults(options.json_schema, options.extra_body)
    users = users_of(options)
    spoken = dialect_named(
        options.dialect or ("openai" if url or options.service else "llama-server")
    )
    plan = serving_plan(options.part(ServiceSettings))
    if options.images and not (url or options.service):
        plan = (plan or ServingPlan()).model_copy(update={"mmproj": AUTO})
    first = CompletionRequest(prompt="Once upon a time", max_tokens=1)
    if data:
        first = check_data(data, spoken, answer=answer, most=most)
    first = defaults.applied(first)
    spoken.body(first, "")
    progress = terminal.progress()
    images = read_images(options.images.expanduser(), progress) if options.images else ()
    reached: AbstractContextManager[LoadTarget]
    if options.service:
        where = load_board(options.board or VIRTUAL)
        reached = target_installed(where, options.service, options.model, spoken, progress)
    elif url:
        reached = nullcontext(target_of(url, options.api_key_file, spoken, options.model))
    else:
        request = options.part(Request).model_copy(update={"board": options.board or VIRTUAL})
        types = [options.type] if options.type else []
        (model,) = models_in(request, [options.model or DEMO], types)
        reached = target_on_board(request, model, plan, spoken, progress)
    with reached as target:
        if target.installed:
            progress.say(
                f"{target.board}: the service {target.installed} may answer others meanwhile; the "
                "record says so."
            )
        check_service(target, first, stop.timeout_s)
        api = ServiceApi(target.url, target.api_key)
        users = with_prefix(users, options.prefix_tokens, target, api, progress)
        stops = options.stop_at_end
        requests: Workload = (
            replayed(trace, api, stops_at_end=stops, seed=number, progress=progress)
            if trace
            else workload_of(
                api,
                data,
                prompt=prompt,
                answer=answer,
                stops_at_end=stops,
                seed=number,
                most=most,
                progress=progress,
            )
        )
        if images and options.images:
            takes = api.properties(target.model).takes_images
            requests = Pictured(requests, images, options.images, takes=takes)
        work = WithDefaults(work=requests, defaults=defaults)
        for hint in hints_about(work.request(each) for each in range(min(most or 64, 64))):
            progress.say(hint)
        loading = LoadRunner(
            *(target, work, None if trace else gaps, number, progress, objectives),
            finds_rate=options.find_rate,
            subtracts_idle=options.subtract_idle,
            users=users,
            percentiles=tuple(sorted(set(options.percentiles))),
        )
        probing = LoadRunner(target, work, gaps, number, progress, objectives, users=users)
        at_a_time = (target.settings or {}).get("slots")
        if not options.find_rate:
            alone = measure_alone(target, work, stop.timeout_s, progress)
            stop = announce_duration(
                *(options, stop, alone, work, users),
                levels=levels * options.repeats,
                gaps=gaps,
                slots=at_a_time,
                times=varied.times if varied else (),
                lengths=(prompt, answer or read_lengths("n-predict", N_PREDICT))
                if spoken.is_streamed
                else None,
                progress=progress,
            )

        def run() -> None:
            if varied is not None:
                loading.staged(*(varied.stages, varied.times, stop), options.max_concurrency)
            elif not options.find_rate or objectives is None:
                loading.run(levels, stop, options.repeats)
            else:
                search(
                    *(probing, loading, objectives, stop),
                    slots=at_a_time,
                    max_time_s=options.max_time,
                    progress=progress,
                )

        yield from _carried_out(run, loading, probing, formats)


def _carried_out(
    run: Callable[[], None], loading: LoadRunner, probing: LoadRunner, formats: Sequence[str]
) -> Generator[Result, None, None]:
    """Run a load; after a failure, or Ctrl-C, yield what there is of it.

    Args:
        probing: what a search begins with.
    """
    from armload.report.load.table import LoadResult
    from armload.serving.exports import export
    from armload.serving.load_runner import interruption

    error: ArmloadError | None = None
    try:
        run()
    except KeyboardInterrupt:
        error = interruption(loading.kept, probing.kept)
    except OSError as fault:
        error = system_error(fault)
    except ArmloadError as fault:
        error = fault
    kept = loading.kept
    if kept is not None and kept.load.points:
        yield LoadResult.of(kept, export(kept, formats, kept.load.objectives), error)
    elif error is not None:
        raise error
