"""``load``: load on a service, and the latencies that its requests have."""

from __future__ import annotations

from pathlib import Path

from invoke.context import Context
from invoke.tasks import task

from armload.cli.flags import JSON_HELP
from armload.cli.verb import Verb

_DURATION_S = 60
_PROMPT_TOKENS = "128"
_N_PREDICT = "128"
_SEED = "1"
_TIMEOUT_S = "600"


@task(
    klass=Verb,
    help={
        "url": "address of a running service, such as http://127.0.0.1:8080",
        "api-key-file": "file with the service's API key (none)",
        "dialect": "openai, openai-chat, llama-server or llm-serving (openai)",
        "model": "name of the model to ask for (the first that the service lists)",
        "rate": "requests per second, sent on time whether earlier ones are answered or not; list",
        "concurrency": "clients that each wait for an answer before they send again; list",
        "duration": f"seconds in which requests are sent ({_DURATION_S}, unless --requests)",
        "requests": "number of requests at most (as many as fit in --duration)",
        "arrivals": "gaps between requests: poisson, constant, gamma:SHAPE, or seed, as the test "
        "client of llm-serving makes them (poisson)",
        "seed": f"seed of arrivals and synthetic requests ({_SEED})",
        "data": "file of requests: JSON lines with prompt or messages, or Alpaca's instruction, "
        "input and output (synthetic requests)",
        "prompt-tokens": "length of synthetic prompts: 128, uniform:16-128, or lognormal with "
        f"median and sigma: lognormal:100:0.8 ({_PROMPT_TOKENS})",
        "n-predict": "most tokens of an answer, given in the same ways (the data's; "
        f"synthetic: {_N_PREDICT})",
        "warmup": "first requests of each rate to exclude from the figures (0)",
        "timeout": f"seconds after which a request has failed ({_TIMEOUT_S})",
        "slo": "latencies that a request must stay within, such as ttft=2s,tpot=500ms,e2e=30s "
        "(none)",
        "export": "also write vllm, csv or seed (result_X_x.json) into the load's folder; list "
        "(none)",
        **JSON_HELP,
    },
)
def load(
    c: Context,
    url: str = "",
    api_key_file: str = "",
    dialect: str = "openai",
    model: str = "",
    rate: str = "",
    concurrency: str = "",
    duration: str = "",
    requests: str = "",
    arrivals: str = "poisson",
    seed: str = _SEED,
    data: str = "",
    prompt_tokens: str = "",
    n_predict: str = "",
    warmup: str = "",
    timeout: str = _TIMEOUT_S,
    slo: str = "",
    export: str = "",
    json: bool = False,
) -> None:
    """Put a service under load, and record what became of each request.

    Requests are sent at random times (--rate), or by clients that wait for their answers
    (--concurrency); lists make a sweep. Latency counts from the time at which a request was to be
    sent.
    Example: armload load --url http://127.0.0.1:8080 --rate 0.5,1,2 --duration 120 --slo ttft=2s
    """
    del c
    from armload.analysis.load.objectives import read_objectives
    from armload.cli import terminal
    from armload.cli.load_options import extent_of, needed, paces_of, target_of
    from armload.cli.numbers import whole_number
    from armload.cli.present_load import load_and_present
    from armload.core.errors import UsageError
    from armload.serving import workload
    from armload.serving.arrivals import LARGEST_SEED, read_arrivals
    from armload.serving.exports import read_formats
    from armload.serving.lengths import read_lengths
    from armload.serving.loading import Loading
    from armload.serving.readiness import check_service
    from armload.serving.tokenizer import ServiceApi

    if data and prompt_tokens:
        raise UsageError("--data and --prompt-tokens exclude each other.", "Leave one out.")
    paces = paces_of(rate, concurrency)
    extent = extent_of(duration, requests, warmup, timeout)
    gaps, number = read_arrivals(arrivals), whole_number("seed", seed, most=LARGEST_SEED) or 0
    prompt = read_lengths("prompt-tokens", prompt_tokens or _PROMPT_TOKENS)
    answer = read_lengths("n-predict", n_predict) if n_predict else None
    objectives, formats = read_objectives(slo), read_formats(export, has_rates=bool(rate))
    most = needed(paces, extent, gaps, number)
    progress = terminal.progress()
    target = target_of(url, api_key_file, dialect, model)
    api = ServiceApi(target.url, target.api_key)
    work = (
        workload.listed(
            Path(data), answer=answer, seed=number, most=most, api=api, progress=progress
        )
        if data
        else workload.synthetic(
            prompt=prompt, answer=answer, seed=number, api=api, progress=progress
        )
    )
    check_service(target, work.ask(0), extent.timeout_s)
    loading = Loading(target, work, gaps, number, progress, objectives)
    load_and_present(loading, paces, extent, formats, as_json=json)
