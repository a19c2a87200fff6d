"""``watch``: a program that is not armload's, run on a board with the same care."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from invoke.context import Context
from invoke.tasks import task

from armload.cli.verb import Verb
from armload.engines.defaults import (
    DEFAULT_TIME_LIMIT_S,
    DEFAULT_WAIT_S,
    SEED_N_PREDICT,
    SEED_PROMPT,
)

if TYPE_CHECKING:
    from armload.engines.watched.output import Reads

_PYTHON = "python3"


@task(
    klass=Verb,
    positional=["command"],
    iterable=["command", "put"],
    help={
        "command": "after --: the program and its arguments; files of --put by their names",
        "board": "a board: the name of a file in boards/ (virtual, which is started)",
        "put": "a file or folder to copy to the board under its own name; can be repeated",
        "reads": "format of the output: mnn (llm_demo, cli_demo), llm_bench (-j), or text (text)",
        "name": "name of the model (the largest file or folder of --put besides the program)",
        "mnn-python": "folder of an MNN model to run with MNN's Python wheel on the board",
        "prompt": f"with --mnn-python: text to answer ({SEED_PROMPT!r})",
        "n-predict": f"with --mnn-python: maximum number of tokens to generate ({SEED_N_PREDICT})",
        "python": f"with --mnn-python: the board's Python that has the wheel ({_PYTHON})",
        "time-limit": f"stop the run on the board after this many seconds ({DEFAULT_TIME_LIMIT_S})",
        "wait": f"seconds to wait while the board is in use ({DEFAULT_WAIT_S})",
        "new": "start over instead of resuming an interrupted run",
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
    python: str = _PYTHON,
    time_limit: str = str(DEFAULT_TIME_LIMIT_S),
    wait: str = str(DEFAULT_WAIT_S),
    new: bool = False,
    json: bool = False,
) -> None:
    """Run any program on a board, timing each write and sampling its memory.

    Example: armload watch --board kitchen --put demo --put qwen -- demo qwen
    """
    del c
    import tempfile
    from pathlib import Path

    from armload.cli import terminal
    from armload.cli.numbers import amount, whole_number
    from armload.cli.present import load_charting_meanwhile, present
    from armload.core.errors import UsageError
    from armload.engines.watched.engine import WatchedProgram, WatchOrder, look_at
    from armload.engines.watched.mnn_wheel import with_wheel
    from armload.runs.pipeline import execute
    from armload.runs.session import Request, session

    if bool(command) == bool(mnn_python):
        raise UsageError(
            "Give a program after --, or an MNN model's folder with --mnn-python.",
            "Example: armload watch --board kitchen --put llm_demo -- llm_demo --help",
        )
    typed = {
        "--prompt": prompt != SEED_PROMPT,
        "--n-predict": n_predict != str(SEED_N_PREDICT),
        "--python": python != _PYTHON,
    }
    if (named := [option for option, is_typed in typed.items() if is_typed]) and not mnn_python:
        raise UsageError(
            f"{', '.join(named)}: only with --mnn-python.",
            "Give the program its own options after --.",
        )
    request = Request(board=board, wait_s=amount("wait", wait), new=new)
    order = WatchOrder(
        words=tuple(command or ()),
        put=tuple(Path(each) for each in put or ()),
        reads=_reads(reads),
        name=name,
        time_limit_s=_time_limit_s(time_limit),
    )
    load_charting_meanwhile()
    with tempfile.TemporaryDirectory() as folder:
        if mnn_python:
            tokens = whole_number("n-predict", n_predict) or 0
            order = with_wheel(
                order,
                Path(mnn_python),
                prompt=prompt,
                tokens=tokens,
                python=python,
                folder=Path(folder),
            )
        progress = terminal.progress()
        program = look_at(order)
        with session(request, (), progress) as where:
            engine = WatchedProgram.load(order, program, progress)
            run, kept = execute(where, engine, progress, new=new)
    present(run, kept, as_json=json)


def _reads(text: str) -> Reads:
    from typing import get_args

    from armload.core.errors import UsageError
    from armload.engines.watched.output import Reads

    for known in get_args(Reads):
        if text == known:
            reads: Reads = known
            return reads
    raise UsageError(f"--reads {text!a}: must be one of {', '.join(get_args(Reads))}.")


def _time_limit_s(text: str) -> float:
    from armload.cli.numbers import amount
    from armload.core.errors import UsageError
    from armload.engines.plan import LONGEST_RUN_S

    limit_s = amount("time-limit", text, most=LONGEST_RUN_S)
    if not limit_s:
        raise UsageError(f"--time-limit {text!a}: must be above 0.")
    return limit_s
