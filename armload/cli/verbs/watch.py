"""``watch``: a program that is not armload's, run on a board with the same care."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from invoke.context import Context
from invoke.tasks import task

from armload.bench.defaults import DEFAULT_TIME_LIMIT_S, DEFAULT_WAIT_S, SEED_N_PREDICT, SEED_PROMPT
from armload.cli.verb import Verb

if TYPE_CHECKING:
    from armload.bench.foreign.said import Reads


@task(
    klass=Verb,
    positional=["command"],
    iterable=["command", "put"],
    help={
        "command": "behind --, the program and its arguments; what is put there, by its name",
        "board": "a file in boards/, such as virtual or dayu200 (virtual)",
        "put": "a file or folder that goes to the board under its name; may be given several times",
        "reads": "whose output it prints: mnn (llm_demo, cli_demo), llm_bench (-j), or text (text)",
        "name": "of the model; left out: the largest thing put there beside the program",
        "mnn-python": "an MNN model's folder, which MNN's Python wheel on the board is to run",
        "prompt": f"with --mnn-python: the text to answer ({SEED_PROMPT!r})",
        "n-predict": f"with --mnn-python: tokens to generate, at most ({SEED_N_PREDICT})",
        "python": "with --mnn-python: the Python on the board that has the wheel (python3)",
        "time-limit": f"seconds after which the board ends the run ({DEFAULT_TIME_LIMIT_S})",
        "wait": f"seconds to wait for a board that somebody else uses ({DEFAULT_WAIT_S})",
        "new": "start another run, even if an interrupted command left the same one there",
        "json": "print one JSON document: the run",
    },
)
def watch(
    c: Context,
    command: Sequence[str] | None = None,
    board: str = "virtual",
    put: Sequence[str] | None = None,
    reads: str = "text",
    n_predict: str = str(SEED_N_PREDICT),
    name: str = "",
    mnn_python: str = "",
    prompt: str = SEED_PROMPT,
    python: str = "python3",
    time_limit: str = str(DEFAULT_TIME_LIMIT_S),
    wait: str = str(DEFAULT_WAIT_S),
    new: bool = False,
    json: bool = False,
) -> None:
    """Run any program on a board, and note when it writes and what memory it takes.

    Example: armload watch --board kitchen --put llm_demo --put qwen -- llm_demo qwen/config.json
    """
    del c
    import tempfile
    from pathlib import Path

    from armload.bench.foreign.session import WatchRequest
    from armload.bench.foreign.session import watch as run_watched
    from armload.bench.foreign.wheel import with_wheel
    from armload.cli import terminal
    from armload.cli.numbers import amount, whole_number
    from armload.cli.present import load_charting_meanwhile, present
    from armload.core.errors import UsageError

    if bool(command) == bool(mnn_python):
        raise UsageError(
            "Either a program behind --, or --mnn-python and an MNN model's folder, is needed.",
            "Example: armload watch --board kitchen --put llm_demo -- llm_demo --help",
        )
    request = WatchRequest(
        board=board,
        words=tuple(command or ()),
        put=tuple(Path(each) for each in put or ()),
        reads=_reads(reads),
        name=name,
        time_limit_s=_time_limit_s(time_limit),
        wait_s=amount("wait", wait),
        new=new,
    )
    load_charting_meanwhile()
    with tempfile.TemporaryDirectory() as folder:
        if mnn_python:
            tokens = whole_number("n-predict", n_predict) or 0
            request = with_wheel(
                request,
                Path(mnn_python),
                prompt=prompt,
                tokens=tokens,
                python=python,
                folder=Path(folder),
            )
        run, kept = run_watched(request, terminal.progress())
    present(run, kept, as_json=json)


def _reads(text: str) -> Reads:
    from typing import get_args

    from armload.bench.foreign.said import Reads
    from armload.core.errors import UsageError

    for known in get_args(Reads):
        if text == known:
            reads: Reads = known
            return reads
    raise UsageError(f"--reads {text!a}: there are {', '.join(get_args(Reads))}.")


def _time_limit_s(text: str) -> float:
    from armload.bench.plan import LONGEST_RUN_S
    from armload.cli.numbers import amount
    from armload.core.errors import UsageError

    limit_s = amount("time-limit", text)
    if not 0 < limit_s <= LONGEST_RUN_S:
        raise UsageError(f"--time-limit {text!a}: 1 to {LONGEST_RUN_S} seconds.")
    return limit_s
