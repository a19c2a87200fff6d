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
    from armload.analysis.bisection import JudgedCommit
    from armload.analysis.run import Run
    from armload.build.history import CommitTitle
    from armload.fleet.bisect import BisectionFolder, BisectionRequest
    from armload.runs.request import Request

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
        Option("phase whose time per token is compared", "DECODE|PREFILL"),
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
def bisect(options: BisectOptions) -> None:
    """Find the commit of llama.cpp that made a model slower on a board.

    Commits are tried in the order of git bisect, each in alternation with the good and the bad one,
    so that a board that warms up does not bias the result. Those that do not build are skipped. If
    the bad commit's run fails, finds the first commit whose run fails. Ends with a draft of an
    issue report. Repeating an interrupted command resumes it.
    Example: armload bisect --board dayu200 --model m.gguf --good b6800 --bad b7000
    """
    import shlex

    from armload.core.errors import UsageError
    from armload.fleet.bisect import BisectionRequest
    from armload.runs.request import Request

    try:
        extra = tuple(shlex.split(options.engine_args))
    except ValueError as error:
        raise UsageError(
            f"--engine-args {options.engine_args}: {error}.", "Quote it as in a shell."
        ) from error
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
    _carry_out(options.part(Request), bisection, as_json=options.as_json)


def _carry_out(request: Request, bisection: BisectionRequest, *, as_json: bool) -> None:
    """Find the commit, with a line for each that is judged, and show it."""
    from armload.cli import terminal
    from armload.cli.streams import show_document
    from armload.core.files import write_whole
    from armload.core.journal import resuming
    from armload.core.values import counted
    from armload.fleet.bisect import bisect as find_commit
    from armload.report.bisected import Bisected, bisected_view, judged_line
    from armload.report.layout import whole

    progress = terminal.progress()

    def begun(journal: BisectionFolder) -> None:
        if done := len(journal.entries):
            progress.say(resuming(journal.header.id, counted(done, "run")))

    def said(judged: JudgedCommit, title: CommitTitle) -> None:
        progress.say(judged_line(judged, title))

    journal = find_commit(request, bisection, progress, begun=begun, said=said)
    document = Bisected.of(journal.header, _run_of_the_first_bad(journal))
    issue = journal.folder / "issue.md"
    write_whole(issue, f"{document.issue}\n".encode())
    if as_json:
        show_document(document)
        return
    terminal.show(bisected_view(journal.header, document.issue))
    terminal.show(whole(f"issue    {issue}"))
    terminal.show(whole(f"record   {journal.folder}"))


def _run_of_the_first_bad(journal: BisectionFolder) -> Run | None:
    from contextlib import suppress

    from armload.core.errors import ArmloadError
    from armload.core.workspace import runs_folder
    from armload.runs import store

    found = journal.header.found
    for each in reversed(journal.entries):
        if found and each.run and each.commit == found.commits[0]:
            with suppress(ArmloadError):
                return store.load(runs_folder() / each.run)
    return None
