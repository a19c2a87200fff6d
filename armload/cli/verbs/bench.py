"""``bench`` and ``pull``: runs on a board, with every token's time."""

from __future__ import annotations

from pathlib import Path

from invoke.context import Context
from invoke.exceptions import Exit
from invoke.tasks import task

from armload.bench.defaults import DEFAULT_TIME_LIMIT_S, DEFAULT_WAIT_S, SEED_N_PREDICT, SEED_PROMPT
from armload.cli.verb import Verb, show_error


@task(
    klass=Verb,
    iterable=["prompt", "engine_args", "cpus"],
    help={
        "board": "a file in boards/, such as virtual or dayu200 (virtual)",
        "model": "a GGUF file, hf:ORG/REPO/FILE.gguf, like:SHAPE:TYPE, or demo; a list (demo)",
        "prompt": f"the text to continue; may be given several times ({SEED_PROMPT!r})",
        "prompt-tokens": "length of a prompt made of common words, instead of a text; a list",
        "n-predict": f"tokens to generate; a list ({SEED_N_PREDICT})",
        "threads": "worker threads; a list, such as 1,2,4 (the engine chooses)",
        "cpus": "the cores that it may run on, such as 4-7 or 0,2; may be given several times",
        "context": "length of the KV cache in tokens; a list (enough for prompt and output)",
        "batch": "prompt tokens that the engine takes at a time; a list",
        "micro-batch": "tokens that go through the model at a time; a list",
        "kv-type": "type of the KV cache, such as q8_0; keys and values apart: q8_0/q4_0; a list",
        "flash-attention": "on, off or auto; a list",
        "engine-args": "more arguments for the engine, quoted as one; may be given several times",
        "temperature": "0: always the likeliest token (0)",
        "seed": "of the sampler (1)",
        "stop-at-end": "stop where the model ends its text, instead of going on to -n tokens",
        "plan": "a YAML file with any of these options as keys; what is typed here goes before it",
        "repeats": "runs of every combination of the lists (1)",
        "warmups": "runs of every combination before them that count nowhere (0)",
        "cold": "let the board forget the files that it has in memory before each run",
        "cool-to": "wait before each run until the hottest sensor shows so many degrees Celsius",
        "governor": "of the CPU's frequency for the time of each run, such as performance",
        "time-limit": f"seconds after which the board ends the run ({DEFAULT_TIME_LIMIT_S})",
        "wait": f"seconds to wait for a board that somebody else uses ({DEFAULT_WAIT_S})",
        "new": "start again, even if an interrupted command left the same run or sweep",
        "reference": "a run whose text this one's must be",
        "source": "a file in toolchains/sources/, a llama.cpp folder, or a git address",
        "ref": "branch, tag or commit, where the source is a git repository",
        "compiler": "zig, gnu or native, as for build",
        "on": "compile the engine on that board, as for build",
        "json": "print one JSON document: the run, or the sweep",
    },
)
def bench(
    c: Context,
    board: str = "",
    model: str = "",
    prompt: list[str] | None = None,
    prompt_tokens: str = "",
    n_predict: str = "",
    threads: str = "",
    cpus: list[str] | None = None,
    context: str = "",
    batch: str = "",
    micro_batch: str = "",
    kv_type: str = "",
    flash_attention: str = "",
    engine_args: list[str] | None = None,
    temperature: str = "",
    seed: str = "",
    stop_at_end: bool = False,
    plan: str = "",
    repeats: str = "",
    warmups: str = "",
    cold: bool = False,
    cool_to: str = "",
    governor: str = "",
    time_limit: str = "",
    wait: str = str(DEFAULT_WAIT_S),
    new: bool = False,
    reference: str = "",
    source: str = "",
    ref: str = "",
    compiler: str = "",
    on: str = "",
    json: bool = False,
) -> None:
    """Run a model on a board and time every token; lists make a sweep.

    Builds and deploys first what is missing. Of settings that are lists, such as --threads 1,2,4,
    every combination is run. What an interrupted command left is gone on with.
    Example: armload bench --board dayu200 --model llama-3.2-1b-q4_0.gguf -n 128
    """
    del c
    from armload.bench import store
    from armload.bench.session import Request
    from armload.bench.setting import Wish
    from armload.bench.wishes import read_wishes, typed_wishes
    from armload.cli.numbers import amount

    wishes = typed_wishes(
        {
            name: value
            for name, value in {
                "board": board,
                "model": _models(model),
                "prompt": prompt,
                "prompt_tokens": _listed(prompt_tokens),
                "n_predict": _listed(n_predict),
                "threads": _listed(threads),
                "cpus": cpus,
                "cold": cold,
                "context": _listed(context),
                "batch": _listed(batch),
                "micro_batch": _listed(micro_batch),
                "kv_type": _listed(kv_type),
                "flash_attention": _listed(flash_attention),
                "engine_args": engine_args,
                "temperature": temperature,
                "seed": seed,
                "stop_at_end": stop_at_end,
                "time_limit": time_limit,
                "cool_to": cool_to,
                "governor": governor,
                "repeats": repeats,
                "warmups": warmups,
            }.items()
            if value
        }
    )
    if plan:
        wishes = wishes.over(read_wishes(Path(plan)))
    request = Request(
        board=wishes.board or "virtual",
        source=source,
        ref=ref,
        compiler=compiler,
        on=on,
        wait_s=amount("wait", wait),
        new=new,
        state=Wish(cool_to_celsius=wishes.cool_to, governor=wishes.governor),
    )
    known = store.load(store.find(reference)) if reference else None
    plans = tuple(wishes.plans())
    if len(plans) * len(wishes.models) * (wishes.repeats or 1) == 1 and not wishes.warmups:
        from armload.cli.present import bench_and_present

        bench_and_present(request, wishes.models[0], plans[0], as_json=json, reference=known)
    else:
        from armload.cli.present_sweep import sweep_and_present

        sweep_and_present(request, wishes, as_json=json, reference=known)


@task(
    klass=Verb,
    help={
        "board": "a file in boards/, such as virtual or dayu200",
        "json": "print one JSON document: the ids of the runs",
    },
)
def pull(c: Context, board: str = "virtual", json: bool = False) -> None:
    """Bring home the runs that lie on a board and not yet here.

    One that cannot be kept does not stop the others; the exit status tells of it.
    Example: armload pull --board dayu200
    """
    del c
    import json as json_format

    from armload.bench.home import pull as pull_runs
    from armload.boards.board import load_board
    from armload.cli import terminal
    from armload.report.table import list_table

    pulled = pull_runs(load_board(board), terminal.progress())
    if json:
        terminal.show_json(json_format.dumps([run.id for run in pulled.runs]))
    elif pulled.runs:
        terminal.show(list_table(pulled.runs))
    elif not pulled.lost:
        terminal.results().print(f"Nothing on {board} that is not here already.")
    if pulled.lost:
        ended = len(pulled.runs) + len(pulled.lost)
        remedies = dict.fromkeys(error.remedy for error in pulled.lost.values() if error.remedy)
        show_error(
            f"{len(pulled.lost)} of {ended} runs stay on {board}: {', '.join(pulled.lost)}.",
            " ".join(remedies),
        )
        raise Exit(code=next(iter(pulled.lost.values())).exit_status)


def _models(text: str) -> list[str]:
    return [text] if text and Path(text).exists() else _listed(text)


def _listed(text: str) -> list[str]:
    return text.split(",") if text else []
