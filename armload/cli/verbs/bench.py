"""``bench`` and ``pull``: runs on a board, with every token's time."""

from __future__ import annotations

import shlex

from invoke.context import Context
from invoke.tasks import task

from armload.bench.defaults import DEFAULT_TIME_LIMIT_S, DEFAULT_WAIT_S, SEED_N_PREDICT, SEED_PROMPT
from armload.cli.verb import Verb


@task(
    klass=Verb,
    help={
        "board": "a file in boards/, such as virtual or dayu200",
        "model": "a GGUF file, hf:ORG/REPO/FILE.gguf, like:SHAPE:TYPE, or demo",
        "prompt": "the text to continue",
        "n-predict": "tokens to generate",
        "threads": "worker threads; 0: the engine chooses",
        "context": "length of the KV cache in tokens; 0: enough for prompt and output",
        "temperature": "0: always the likeliest token",
        "seed": "of the sampler",
        "stop-at-end": "stop where the model ends its text, instead of going on to -n tokens",
        "engine-args": "further arguments for the engine, quoted as one",
        "time-limit": "seconds after which the board ends the run",
        "source": "a file in toolchains/sources/, a llama.cpp folder, or a git address",
        "ref": "branch, tag or commit, where the source is a git repository",
        "compiler": "zig, gnu or native, as for build",
        "on": "compile the engine on that board, as for build",
        "wait": "seconds to wait for a board that somebody else uses",
        "new": "start another run, even if an interrupted command left the same one there",
        "reference": "a run whose text this one's must be",
        "json": "print one JSON document: the run",
    },
)
def bench(
    c: Context,
    board: str = "virtual",
    model: str = "demo",
    prompt: str = SEED_PROMPT,
    n_predict: str = str(SEED_N_PREDICT),
    threads: str = "0",
    context: str = "0",
    temperature: str = "0",
    seed: str = "1",
    stop_at_end: bool = False,
    engine_args: str = "",
    time_limit: str = str(DEFAULT_TIME_LIMIT_S),
    source: str = "",
    ref: str = "",
    compiler: str = "",
    on: str = "",
    wait: str = str(DEFAULT_WAIT_S),
    new: bool = False,
    reference: str = "",
    json: bool = False,
) -> None:
    """Run a model on a board and time every token.

    Builds and deploys first what is missing. A run that an interrupted command left is taken over.
    Example: armload bench --board dayu200 --model llama-3.2-1b-q4_0.gguf -n 128
    """
    del c
    from armload.bench import store
    from armload.bench.plan import new_plan
    from armload.bench.runner import Request
    from armload.cli.numbers import amount
    from armload.cli.present import bench_and_present

    plan = new_plan(
        {
            "prompt": prompt,
            "n_predict": n_predict,
            "threads": None if threads == "0" else threads,
            "context_tokens": None if context == "0" else context,
            "temperature": temperature,
            "seed": seed,
            "stop_at_end": stop_at_end,
            "extra": _words(engine_args),
            "time_limit_s": time_limit,
        }
    )
    request = Request(
        board=board,
        model=model,
        source=source,
        ref=ref,
        compiler=compiler,
        on=on,
        wait_s=amount("wait", wait),
        new=new,
    )
    known = store.load(store.find(reference)) if reference else None
    bench_and_present(request, plan, as_json=json, reference=known)


@task(
    klass=Verb,
    help={
        "board": "a file in boards/, such as virtual or dayu200",
        "json": "print one JSON document: the ids of the runs",
    },
)
def pull(c: Context, board: str = "virtual", json: bool = False) -> None:
    """Bring home the runs that lie on a board and not yet here.

    Example: armload pull --board dayu200
    """
    del c
    import json as json_format

    from armload.bench.runner import pull as pull_runs
    from armload.boards.board import load_board
    from armload.cli import terminal
    from armload.report.table import list_table

    runs = pull_runs(load_board(board), terminal.progress())
    if json:
        terminal.show_json(json_format.dumps([run.id for run in runs]))
    elif runs:
        terminal.show(list_table(runs))
    else:
        terminal.results().print(f"Nothing on {board} that is not here already.")


def _words(text: str) -> tuple[str, ...]:
    from armload.core.errors import UsageError

    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise UsageError(
            f"--engine-args {text!r}: {error}.", "Quote it as a shell's command line."
        ) from error
