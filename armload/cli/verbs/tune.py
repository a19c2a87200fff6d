"""``tune``: the settings with which a model is fastest on a board."""

from __future__ import annotations

from pathlib import Path

from invoke.context import Context
from invoke.tasks import task

from armload.cli.flags import BOARD_HELP, JSON_HELP, SOURCE_HELP
from armload.cli.verb import Verb
from armload.engines.defaults import DEFAULT_WAIT_S, REQUEST_TIMEOUT_S, SEED_PROMPT, TUNED_REQUESTS

_SEED = "1"


@task(
    klass=Verb,
    help={
        **BOARD_HELP,
        "model": "a GGUF file, hf:ORG/REPO/FILE.gguf, like:SHAPE:TYPE, word-problems:TYPE, or "
        "demo (demo)",
        "for": "what to optimize: decode, prefill, ttft (time to first token), total-time (of "
        "--rate requests per second, as load --arrivals seed sends them), or rate (requests "
        "answered within --slo)",
        "space": "a YAML file whose keys are options, such as threads: [2, 4]; each list replaces "
        "what would be searched (what board, model and engine offer)",
        "max-time": "begin no trial after this time, such as 30m or 2h; interruptions do not count "
        "(until the best is clear)",
        "max-trials": "begin no more trials than this (until the best is clear)",
        "max-kld": "mean KL divergence from the defaults that a setting may have (none)",
        "kld-prompts": "texts for --max-kld, one on each line (what the defaults write)",
        "min-accuracy": "SHARE:TASK or SHARE:TASK:QUESTIONS: lower bound of the accuracy's 95% "
        "interval, such as 0.5:gsm8k:200 (none)",
        "task-data": "the questions of --min-accuracy, as --data of eval (the task's own)",
        "max-memory": "peak resident memory that a setting may take, such as 1.5GB (the board's)",
        "prompt": f"for decode, the text to continue ({SEED_PROMPT!r})",
        "prompt-tokens": "length of a prompt of common words, or of synthetic requests as for load "
        "(512 for prefill, else 128)",
        "n-predict": "tokens to generate for decode (64), or of synthetic answers (128)",
        "rate": "requests per second, for total-time",
        "duration": "seconds in which requests are sent, for total-time",
        "requests": f"number of requests at most ({TUNED_REQUESTS} for rate)",
        "data": "file of requests, as for load (synthetic requests)",
        "slo": "latencies that a request must stay within, such as ttft=2s,tpot=500ms, for rate",
        "timeout": f"seconds after which a request has failed ({REQUEST_TIMEOUT_S:g})",
        "seed": f"seed of the search, of arrivals and of synthetic requests ({_SEED})",
        "output": "plan file to write (tuned-BOARD-MODEL.yaml)",
        "wait": f"seconds to wait while the board is in use ({DEFAULT_WAIT_S})",
        "new": "start over instead of resuming an interrupted search",
        **SOURCE_HELP,
        **JSON_HELP,
    },
)
def tune(
    c: Context,
    board: str = "virtual",
    model: str = "demo",
    for_: str = "decode",
    space: str = "",
    max_time: str = "",
    max_trials: str = "",
    max_kld: str = "",
    kld_prompts: str = "",
    min_accuracy: str = "",
    task_data: str = "",
    max_memory: str = "",
    prompt: str = "",
    prompt_tokens: str = "",
    n_predict: str = "",
    rate: str = "",
    duration: str = "",
    requests: str = "",
    data: str = "",
    slo: str = "",
    timeout: str = "",
    seed: str = _SEED,
    output: str = "",
    wait: str = str(DEFAULT_WAIT_S),
    new: bool = False,
    source: str = "",
    ref: str = "",
    compiler: str = "",
    on: str = "",
    json: bool = False,
) -> None:
    """Search the settings with which a model is fastest on a board.

    Short trials come first; longer ones go to the best. The winner is compared with the defaults
    in alternating runs, and written to a plan file. Repeating an interrupted command resumes it.
    Example: armload tune --board dayu200 --model m.gguf --for decode --max-time 30m
    """
    del c
    from armload.cli.numbers import amount, duration_s, whole_number
    from armload.cli.output import output_file
    from armload.cli.present_tuning import tune_and_present
    from armload.cli.tuning_options import (
        constraints_of,
        objective_named,
        requests_of,
        work_typed,
    )
    from armload.evaluation.logits.prompts import read_prompts
    from armload.runs.session import Request
    from armload.serving.arrivals import LARGEST_SEED
    from armload.tuning.wish import Wish

    objective = objective_named(for_)
    served = {
        "rate": rate,
        "duration": duration,
        "requests": requests,
        "data": data,
        "slo": slo,
        "timeout": timeout,
    }
    load = requests_of(objective, served, prompt_tokens=prompt_tokens, n_predict=n_predict)
    wish = Wish(
        model=model,
        objective=objective,
        narrowing=Path(space) if space else None,
        constraints=constraints_of(
            max_kld, min_accuracy, max_memory, kld_prompts=kld_prompts, task_data=task_data
        ),
        work=work_typed(objective, prompt, prompt_tokens, n_predict),
        requests=load,
        kld_prompts=read_prompts(Path(kld_prompts)) if kld_prompts else (),
        seed=whole_number("seed", seed, most=LARGEST_SEED) or 0,
        max_trials=whole_number("max-trials", max_trials, least=1),
        max_time_s=duration_s("max-time", max_time) if max_time else None,
    )
    request = Request(
        board=board,
        source=source,
        ref=ref,
        compiler=compiler,
        on=on,
        wait_s=amount("wait", wait),
        new=new,
    )
    tune_and_present(request, wish, output=output_file(output) if output else None, as_json=json)
