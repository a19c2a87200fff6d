"""``watch``: a program that is not armload's, run on a board with the same care."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from armload.cli.options import ForeignProgram, OnBoard, OutputOptions
from armload.cli.verb import verb
from armload.core.errors import UsageError
from armload.core.options import Alternatives, Exclusive, Option
from armload.core.workspace import runs_folder
from armload.engines.plan import (
    DEFAULT_TIME_LIMIT_S,
    SEED_N_PREDICT,
    SEED_PROMPT,
    PromptText,
    Seconds,
    TokenCount,
)
from armload.runs.request import Metering, Resuming, Waiting

if TYPE_CHECKING:
    from armload.report.result import Result


class WatchOptions(ForeignProgram, OnBoard, Resuming, Metering, Waiting, OutputOptions):
    """A program, what lies beside it on the board, and how its output is read."""

    heading = "Program"
    alternatives: ClassVar[Alternatives] = (Exclusive((("command",), ("mnn_python",))),)

    stdin: Annotated[
        str,
        Option(
            "its standard input: a file, or the text itself",
            "TEXT|FILE",
            usual="empty",
            takes="file",
        ),
    ] = ""
    mnn_python: Annotated[
        Path | None,
        Option("folder of an MNN model to run with MNN's Python wheel on the board", "FOLDER"),
    ] = None
    python: Annotated[str, Option("with --mnn-python: the board's Python that has the wheel")] = (
        "python3"
    )
    prompt: Annotated[
        PromptText,
        Option(
            "with --mnn-python: text to answer",
            usual=repr(SEED_PROMPT),
            heading="Plan",
            harmless="anywhere",
        ),
    ] = SEED_PROMPT
    n_predict: Annotated[
        TokenCount,
        Option(
            "with --mnn-python: maximum number of tokens to generate",
            "N",
            heading="Plan",
            harmless="anywhere",
        ),
    ] = SEED_N_PREDICT
    time_limit_s: Annotated[
        Seconds,
        Option(
            "stop the run on the board after this many seconds",
            "SECONDS",
            name="time-limit",
            heading="Board",
        ),
    ] = DEFAULT_TIME_LIMIT_S


@verb(WatchOptions, keeps=True, results=(runs_folder,))
def watch(options: WatchOptions) -> Result:
    """Run any program on a board, timing each write and sampling its memory.

    Example: armload watch --board kitchen --put demo --put qwen -- demo qwen
    """
    import tempfile

    from armload.boards.board import is_group
    from armload.cli import terminal
    from armload.engines.rpc_server import RPC_SERVER
    from armload.engines.watched.engine import (
        WatchedProgram,
        WatchRequest,
        look_at,
        stdin_file,
        with_wheel,
    )
    from armload.engines.watched.llama_cpp import WatchedOnGroup, model_of
    from armload.engines.watched.reader import chosen_reader
    from armload.report.table import NewRun
    from armload.runs.pipeline import execute
    from armload.runs.request import Request
    from armload.runs.session import session

    if bool(options.command) == bool(options.mnn_python):
        raise UsageError(
            "Give a program after --, or an MNN model's folder with --mnn-python.",
            "Example: armload watch --board kitchen --put llm_demo -- llm_demo --help",
        )
    if not options.mnn_python:
        options = options.refuse_without(
            ("prompt", "n_predict", "python"),
            "--mnn-python",
            "Put the program's own options after --.",
        )
    else:
        options = options.refuse(
            ("reader", "stdin"), "--mnn-python", "armload's own script answers the --prompt there."
        )
    request = options.part(Request)
    progress = terminal.progress()
    reader, about_reader = chosen_reader(options.reader, options.command)
    if about_reader:
        progress.say(about_reader)
    with tempfile.TemporaryDirectory() as folder:
        watch_request = WatchRequest(
            words=options.command,
            put=options.put,
            reader=reader,
            is_guessed=not options.reader,
            stdin=stdin_file(options.stdin, Path(folder)) if options.stdin else None,
            name=options.name,
            time_limit_s=options.time_limit_s,
        )
        if options.mnn_python:
            watch_request = with_wheel(
                watch_request,
                options.mnn_python,
                prompt=options.prompt,
                tokens=options.n_predict,
                python=options.python,
                folder=Path(folder),
            )
        program = look_at(watch_request)
        on_group = is_group(request.board)
        if on_group:
            model_of(watch_request)  # what cannot run there is said before anything is built
        programs = (RPC_SERVER,) if on_group else ()
        with session(request, programs, progress, takes_groups=True) as where:
            load = WatchedOnGroup.on_group if on_group else WatchedProgram.load
            engine = load(watch_request, program, progress)
            run, kept = execute(where, engine, progress, new=options.new)
    return NewRun(run=run, folder=kept)
