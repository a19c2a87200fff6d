"""``bench`` and ``pull``: runs on a board, with every token's time."""

from __future__ import annotations

from pathlib import Path

from invoke.context import Context
from invoke.exceptions import Exit
from invoke.tasks import task

from armload.cli.flags import BOARD_HELP, SOURCE_HELP
from armload.cli.verb import Verb, show_error
from armload.engines.defaults import (
    DEFAULT_PRECISION,
    DEFAULT_PRECISION_TIME_S,
    DEFAULT_TIME_LIMIT_S,
    DEFAULT_WAIT_S,
    SEED_N_PREDICT,
    SEED_PROMPT,
)


@task(
    klass=Verb,
    iterable=["prompt", "engine_args", "cpus"],
    help={
        "board": "a board: the name of a file in boards/, such as virtual or dayu200 (virtual)",
        "model": "a GGUF file, hf:ORG/REPO/FILE.gguf, like:SHAPE:TYPE, word-problems:TYPE, or "
        "demo; list (demo)",
        "type": "quantise the models to these file types first, such as Q4_K_M; list (as they are)",
        "prompt": f"text to continue; can be repeated ({SEED_PROMPT!r})",
        "prompt-tokens": "length of a prompt of common words, instead of a text; list",
        "n-predict": f"tokens to generate; list ({SEED_N_PREDICT})",
        "threads": "worker threads; list, such as 1,2,4 (chosen by the engine)",
        "cpus": "run on these cores only, such as 4-7 or 0,2; can be repeated (all cores)",
        "context": "size of the KV cache in tokens; list (enough for prompt and output)",
        "batch": "logical batch size: prompt tokens per call of the engine; list",
        "micro-batch": "physical batch size: tokens per pass through the model; list",
        "kv-type": "type of the KV cache, such as q8_0, or of keys/values: q8_0/q4_0; list",
        "flash-attention": "flash attention: on, off or auto; list",
        "weights": "mapped: the kernel reads what is missing; streamed: read ahead of the "
        "computation, with a part locked in memory; auto: streamed if the "
        "weights exceed the memory; list (auto)",
        "resident": "part of streamed weights to lock in memory, such as 400MB; list (what fits)",
        "speculate": "guess tokens and verify several in one pass: none, ngram (from the text so "
        "far) or draft:MODEL (a small model of the same family); list (none)",
        "engine-args": "more arguments for the engine, as one quoted string; can be repeated",
        "temperature": "sampling temperature; 0 always takes the most likely token (0)",
        "seed": "seed of the sampler (1)",
        "stop-at-end": "stop at the model's end-of-text token instead of generating -n tokens",
        "plan": "a YAML file with such options as keys; command-line options override the file",
        "repeats": "runs of each combination of the lists (1; without lists as --precision needs)",
        "warmups": "runs before these that are excluded from the results (0)",
        "precision": "repeat a single combination until its median time per token is known this "
        f"precisely ({DEFAULT_PRECISION:.0%})",
        "precision-time": "seconds that repeats for --precision may take beyond the first run "
        f"({DEFAULT_PRECISION_TIME_S})",
        "cold": "drop the board's page cache before each run: the model is read from storage",
        "cool-to": "before each run, wait until the hottest sensor reads this temperature or less",
        "governor": "CPU frequency governor during each run, such as performance",
        "time-limit": f"stop a run on the board after this many seconds ({DEFAULT_TIME_LIMIT_S})",
        "wait": f"seconds to wait while the board is in use ({DEFAULT_WAIT_S})",
        "new": "start over instead of resuming an interrupted run or sweep",
        "reference": "run whose text is the expected output, named as for show",
        **SOURCE_HELP,
        "json": "print one JSON document: the run (of repeats, the median one), or the sweep",
    },
)
def bench(
    c: Context,
    board: str = "",
    model: str = "",
    type: str = "",  # noqa: A002 - the name of the option
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
    weights: str = "",
    resident: str = "",
    speculate: str = "",
    engine_args: list[str] | None = None,
    temperature: str = "",
    seed: str = "",
    stop_at_end: bool = False,
    plan: str = "",
    repeats: str = "",
    warmups: str = "",
    precision: str = "",
    precision_time: str = "",
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

    Builds and deploys what is missing first. Options marked "list" take several values, such as
    --threads 1,2,4; every combination is run. Repeating an interrupted command resumes it.
    Example: armload bench --board dayu200 --model llama-3.2-1b-q4_0.gguf -n 128
    """
    del c
    from armload.analysis.repeats import Precision
    from armload.bench.options import read_options, typed_options
    from armload.cli.numbers import amount, share
    from armload.core.errors import UsageError
    from armload.runs import store
    from armload.runs.prepare import BoardState
    from armload.runs.session import Request

    options = typed_options(
        {
            name: value
            for name, value in {
                "board": board,
                "model": _models(model),
                "type": _listed(type),
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
                "weights": _listed(weights),
                "resident": _listed(resident),
                "speculate": _listed(speculate),
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
        options = options.over(read_options(Path(plan)))
    request = Request(
        board=options.board or "virtual",
        source=source,
        ref=ref,
        compiler=compiler,
        on=on,
        wait_s=amount("wait", wait),
        new=new,
        state=BoardState(cool_to_celsius=options.cool_to, governor=options.governor),
    )
    known = store.load(store.find(reference)) if reference else None
    plans = tuple(options.plans())
    models_count = len(options.models) * (len(options.type) or 1)
    is_single = len(plans) * models_count * (options.repeats or 1) == 1
    is_single = is_single and not options.warmups
    is_repeated = is_single and options.repeats is None
    if (precision or precision_time) and not is_repeated:
        raise UsageError(
            "--precision repeats a single combination as often as needed, and excludes lists, "
            "--repeats and --warmups.",
            "Leave one out.",
        )
    if options.type:
        from armload.cli import terminal
        from armload.conversion.quantising import quantised_for

        paths = quantised_for(request, options.models, options.type, terminal.progress())
        options = options.model_copy(update={"model": paths, "type": ()})
    if is_repeated:
        from armload.cli.present import repeat_and_present

        wanted = Precision(
            share=share("precision", precision) if precision else DEFAULT_PRECISION,
            added_s=amount("precision-time", precision_time or str(DEFAULT_PRECISION_TIME_S)),
        )
        repeat_and_present(
            request, options.models[0], plans[0], wanted, as_json=json, reference=known
        )
    elif is_single:
        from armload.cli.present import bench_and_present

        bench_and_present(request, options.models[0], plans[0], as_json=json, reference=known)
    else:
        from armload.cli.present_sweep import sweep_and_present

        sweep_and_present(request, options, as_json=json, reference=known)


@task(
    klass=Verb,
    help={
        **BOARD_HELP,
        "json": "print one JSON document: the ids of the fetched runs, and why others were not",
    },
)
def pull(c: Context, board: str = "virtual", json: bool = False) -> None:
    """Fetch the finished runs on a board that have not been fetched yet.

    A run that cannot be fetched does not stop the others; the exit status is then not 0.
    Example: armload pull --board dayu200
    """
    del c
    from armload.boards.board import load_board
    from armload.cli import terminal
    from armload.cli.document import show_document
    from armload.report.failure import Failure, FetchedRuns, UnfetchedRun
    from armload.report.table import list_table
    from armload.runs.pull import pull as pull_runs

    pulled = pull_runs(load_board(board), terminal.progress())
    if json:
        failed = tuple(
            UnfetchedRun(run=run, error=Failure.of(error)) for run, error in pulled.lost.items()
        )
        show_document(FetchedRuns(runs=tuple(run.id for run in pulled.runs), failed=failed))
    elif pulled.runs:
        terminal.show(list_table(pulled.runs))
    elif not pulled.lost:
        terminal.show(f"There is nothing to fetch from {board}.")
    if pulled.lost:
        ended = len(pulled.runs) + len(pulled.lost)
        remedies = dict.fromkeys(error.remedy for error in pulled.lost.values() if error.remedy)
        show_error(
            f"{len(pulled.lost)} of {ended} runs stay on {board}: {', '.join(pulled.lost)}.",
            " ".join(remedies),
        )
        raise Exit(code=next(iter(pulled.lost.values())).exit_status)


def _models(text: str) -> list[str]:
    from armload.core.disk import is_there

    return [text] if text and is_there(Path(text)) else _listed(text)


def _listed(text: str) -> list[str]:
    return text.split(",") if text else []
