"""``load``: load on a service, and the latencies that its requests have."""

from __future__ import annotations

from pathlib import Path

from invoke.context import Context
from invoke.tasks import task

from armload.cli.flags import JSON_HELP, SOURCE_HELP
from armload.cli.serving_options import SERVING_HELP
from armload.cli.verb import Verb
from armload.engines.defaults import DEFAULT_WAIT_S, REQUEST_TIMEOUT_S

_BOARD, _MODEL = "virtual", "demo"
_DURATION_S = 60
_PROMPT_TOKENS = "128"
_N_PREDICT = "128"
_FIND_REQUESTS = "100"
_SEED = "1"
_ARRIVALS = "poisson"
_TIMEOUT_S = f"{REQUEST_TIMEOUT_S:g}"


@task(
    klass=Verb,
    help={
        "board": f"a board to serve the model on, unless --url ({_BOARD})",
        "url": "address of a running service instead, such as http://127.0.0.1:8080",
        "api-key-file": "file with the API key of the service at --url (none)",
        "dialect": "openai, openai-chat, llama-server or llm-serving (llama-server; with --url "
        "openai)",
        "model": f"what to serve, as for bench ({_MODEL}); with --url, the name to ask for (the "
        "first that the service lists)",
        "type": "quantise the model to this file type first, such as Q4_K_M (as it is)",
        "rate": "requests per second, sent on time whether earlier ones are answered or not; "
        "several: 1,2,4",
        "find-rate": "find the highest rate that meets --slo for nine of ten requests, with 95% "
        f"confidence; sends --requests ({_FIND_REQUESTS}) at each rate",
        "concurrency": "clients that each wait for an answer before they send again; several: "
        "1,2,4",
        "duration": f"seconds in which requests are sent ({_DURATION_S}, unless --requests)",
        "requests": "number of requests at most (as many as fit in --duration)",
        "arrivals": "gaps between requests: poisson, constant, gamma:SHAPE, or seed, as the test "
        f"client of MindSpore's llm-serving makes them ({_ARRIVALS})",
        "seed": f"seed of arrivals and synthetic requests ({_SEED})",
        "data": "file of requests: JSON lines with prompt or messages, or Alpaca's instruction, "
        "input and output (synthetic requests)",
        "prompt-tokens": "length of synthetic prompts: 128, uniform:16-128, or lognormal with "
        f"median and sigma: lognormal:100:0.8 ({_PROMPT_TOKENS})",
        "n-predict": "tokens of synthetic answers, or most tokens of the data's, given in the same "
        f"ways ({_N_PREDICT}; the data's)",
        "stop-at-end": "stop synthetic answers at the model's end-of-text token",
        "warmup": "first requests of each rate to exclude from the figures (0)",
        "timeout": f"seconds after which a request has failed ({_TIMEOUT_S})",
        "slo": "latencies that a request must stay within, such as ttft=2s,tpot=500ms,e2e=30s "
        "(none)",
        "export": "also write vllm, csv or seed (result_X_x.json) into the load's folder; several: "
        "vllm,csv (none)",
        "wait": f"seconds to wait while the board is in use ({DEFAULT_WAIT_S})",
        **{name: text for name, text in SERVING_HELP.items() if name != "temperature"},
        **SOURCE_HELP,
        **JSON_HELP,
    },
)
def load(
    c: Context,
    board: str = "",
    url: str = "",
    api_key_file: str = "",
    dialect: str = "",
    model: str = "",
    type: str = "",  # noqa: A002 - the name of the option
    rate: str = "",
    find_rate: bool = False,
    concurrency: str = "",
    duration: str = "",
    requests: str = "",
    arrivals: str = "",
    seed: str = _SEED,
    data: str = "",
    prompt_tokens: str = "",
    n_predict: str = "",
    stop_at_end: bool = False,
    warmup: str = "",
    timeout: str = _TIMEOUT_S,
    slo: str = "",
    export: str = "",
    wait: str = str(DEFAULT_WAIT_S),
    slots: str = "",
    context: str = "",
    threads: str = "",
    cpus: str = "",
    batch: str = "",
    micro_batch: str = "",
    kv_type: str = "",
    flash_attention: str = "",
    weights: str = "",
    resident: str = "",
    prompt_cache: str = "",
    source: str = "",
    ref: str = "",
    compiler: str = "",
    on: str = "",
    json: bool = False,
) -> None:
    """Put a service under load, and record the outcome of each request.

    Requests are sent at random times (--rate), or by clients that wait for their answers
    (--concurrency); several rates or numbers of clients make a sweep. Latency counts from the
    time at which a request was to be sent.
    Example: armload load --board dayu200 --model m.gguf --rate 1,2 --slo ttft=2s
    """
    del c
    from contextlib import AbstractContextManager, nullcontext

    from armload.analysis.load.objectives import read_objectives
    from armload.cli import terminal
    from armload.cli.load_options import (
        check_find_rate,
        extent_of,
        needed,
        paces_of,
        refuse_without_effect,
        target_of,
        target_on_board,
    )
    from armload.cli.numbers import amount, whole_number
    from armload.cli.present_load import load_and_present
    from armload.cli.serving_options import serving_plan
    from armload.cli.typed_models import model_in
    from armload.core.errors import UsageError
    from armload.runs.session import Request
    from armload.serving.arrivals import LARGEST_SEED, read_arrivals
    from armload.serving.ask import Ask
    from armload.serving.dialects.every import dialect_named
    from armload.serving.expected import expected, measure_alone, told
    from armload.serving.exports import read_formats
    from armload.serving.find_rate import find_rate as search
    from armload.serving.lengths import read_lengths
    from armload.serving.loading import Loading
    from armload.serving.readiness import check_service
    from armload.serving.target import Target
    from armload.serving.tokenizer import ServiceApi
    from armload.serving.workload import check_data, workload_of

    is_built = bool(source or ref or compiler or on) or wait != str(DEFAULT_WAIT_S)
    refuse_without_effect(
        url=url,
        api_key_file=api_key_file,
        is_built=is_built,
        concurrency=concurrency,
        arrivals=arrivals,
        data=data,
        prompt_tokens=prompt_tokens,
        stop_at_end=stop_at_end,
    )
    if find_rate:
        requests = requests or _FIND_REQUESTS
        check_find_rate(
            paces=rate or concurrency,
            duration=duration,
            slo=slo,
            requests=requests,
            warmup=warmup,
        )
    paces = [] if find_rate else paces_of(rate, concurrency)
    extent = extent_of(duration, requests, warmup, timeout)
    gaps = read_arrivals(arrivals or _ARRIVALS)
    number = whole_number("seed", seed, most=LARGEST_SEED) or 0
    objectives, formats = (
        read_objectives(slo),
        read_formats(export, has_rates=bool(rate) or find_rate),
    )
    prompt = read_lengths("prompt-tokens", prompt_tokens or _PROMPT_TOKENS)
    answer = read_lengths("n-predict", n_predict) if n_predict else None
    most = None if find_rate else needed(paces, extent, gaps, number)
    spoken = dialect_named(dialect or ("openai" if url else "llama-server"))
    plan = serving_plan(
        {
            "slots": slots,
            "context": context,
            "threads": threads,
            "cpus": cpus,
            "batch": batch,
            "micro_batch": micro_batch,
            "kv_type": kv_type,
            "flash_attention": flash_attention,
            "weights": weights,
            "resident": resident,
            "prompt_cache": prompt_cache,
        }
    )
    if url and (board or plan or type):
        raise UsageError(
            "--url (a service that is already running) cannot be combined with --board, --type or "
            "the settings of a service.",
            "Leave one out.",
        )
    first = Ask(prompt="Once upon a time", max_tokens=1)
    if data:
        first = check_data(Path(data), spoken, answer=answer, most=most)
    progress = terminal.progress()
    reached: AbstractContextManager[Target]
    if url:
        reached = nullcontext(target_of(url, api_key_file, spoken, model))
    else:
        request = Request(
            board=board or _BOARD,
            source=source,
            ref=ref,
            compiler=compiler,
            on=on,
            wait_s=amount("wait", wait),
        )
        reached = target_on_board(
            request, model_in(request, model or _MODEL, type), plan, spoken, progress
        )
    with reached as target:
        check_service(target, first, extent.timeout_s)
        work = workload_of(
            ServiceApi(target.url, target.api_key),
            Path(data) if data else None,
            prompt=prompt,
            answer=answer,
            stops_at_end=stop_at_end,
            seed=number,
            most=most,
            progress=progress,
        )
        loading = Loading(target, work, gaps, number, progress, objectives, finds_rate=find_rate)
        at_a_time = (target.settings or {}).get("slots")
        if not find_rate:
            alone = measure_alone(target, work, extent.timeout_s, progress)
            if alone is not None:
                lasts = expected(alone, work, paces, extent, gaps, number, slots=at_a_time)
                progress.say(
                    told(
                        lasts,
                        paces,
                        None if data else (prompt, answer or read_lengths("n-predict", _N_PREDICT)),
                    )
                )

        def run() -> object:
            if not find_rate or objectives is None:
                return loading.run(paces, extent)
            probing = Loading(target, work, gaps, number, progress, objectives)
            return search(probing, loading, objectives, extent, slots=at_a_time, progress=progress)

        load_and_present(loading, run, formats, as_json=json)
