"""``bisect``: the commit that made a model slower on a board."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from armload.bench.options import MODEL
from armload.cli.options import OnBoard, OutputOptions
from armload.cli.verb import verb
from armload.core.defaults import DEMO
from armload.core.options import Option, Share, Yields
from armload.core.workspace import bisections_folder, runs_folder
from armload.engines.plan import Plan
from armload.runs.request import Compilation, Resuming, Waiting

if TYPE_CHECKING:
    from armload.report.result import Result

UPSTREAM = "https://github.com/ggml-org/llama.cpp"


class BisectOptions(OnBoard, Resuming, Waiting, Compilation, Plan, OutputOptions):
    """Between which commits, what is looked for, and how each is run.

    Attributes:
        split: not an option here: no group is searched on.
    """

    heading = "Search"
    yields: ClassVar[Yields] = {"text_differs": ("slower", "for_")}

    good: Annotated[str, Option("branch, tag or commit that is fast, or correct", "REF")]
    bad: Annotated[str, Option("later branch, tag or commit that is slow, or wrong", "REF")]
    slower: Annotated[
        Share,
        Option("smallest slowdown to look for; smaller ones may go unnoticed", "PERCENT", "5%"),
    ] = 0.05
    for_: Annotated[
        Literal["decode", "prefill"],
        Option("phase whose time per token is compared", "decode|prefill"),
    ] = "decode"
    text_differs: Annotated[
        bool,
        Option(
            "instead, find the first commit whose text differs from that of --good",
            harmless="anywhere",
        ),
    ] = False
    source: Annotated[
        str,
        Option(
            "address or folder of a llama.cpp repository",
            "REPOSITORY",
            "ggml-org on GitHub",
            heading="Build",
            takes="folder",
        ),
    ] = UPSTREAM
    model: Annotated[str, Option(MODEL, heading="Plan", harmless="in a plan")] = DEMO
    split: None = None
    engine_args: Annotated[
        str,
        Option(
            "more arguments for the engine, as one quoted string", "ARGUMENTS", heading="Engine"
        ),
    ] = ""


@verb(BisectOptions, keeps=True, results=(runs_folder, bisections_folder))
def bisect(options: BisectOptions) -> Result:
    """Find the commit of llama.cpp that made a model slower on a board.

    Commits are tried in the order of git bisect, each in alternation with the good and the bad one,
    so that a board that warms up does not bias the result. Those that do not build are skipped. If
    the bad commit's run fails, finds the first commit whose run fails. Ends with a draft of an
    issue report. Repeating an interrupted command resumes it.
    Example: armload bisect --board dayu200 --model m.gguf --good b6800 --bad b7000
    """
    import shlex

    from armload.cli import terminal
    from armload.core.errors import UsageError
    from armload.fleet.bisect import BisectionRequest
    from armload.fleet.bisect import bisect as find_commit
    from armload.report.bisected import BisectionResult, judged_line
    from armload.runs.request import Request

    try:
        extra = tuple(shlex.split(options.engine_args))
    except ValueError as error:
        raise UsageError(
            f"--engine-args {options.engine_args}: {error}.", "Quote it as in a shell."
        ) from error
    if options.engine != "llama.cpp":
        raise UsageError(
            f"--engine {options.engine}: bisect searches the commits of llama.cpp.",
            "Remove --engine.",
        )
    if options.text_differs:
        options = options.refuse(("slower", "for_"), "--text-differs", "Remove one.")
    bisection = BisectionRequest(
        good=options.good,
        bad=options.bad,
        model=options.model,
        plan=options.part(Plan).model_copy(update={"extra": extra}),
        metric=options.for_,
        slower=options.slower,
        text_differs=options.text_differs,
    )
    progress = terminal.progress()
    journal = find_commit(
        options.part(Request),
        bisection,
        progress,
        begun=lambda journal: journal.say_resumed(progress, "run"),
        said=lambda judged, title: progress.say(judged_line(judged, title)),
    )
    return BisectionResult(journal=journal)
