"""``demo``, ``bench`` and ``pull``: runs on a board, with every token's time."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self, TypedDict

from pydantic import model_validator

from armload.bench.options import MODEL, Listed, Options
from armload.cli.options import (
    BOARDS,
    STARTED,
    OnBoards,
    OneBoard,
    OnGateways,
    OutputOptions,
    json_option,
    models_in,
)
from armload.cli.verb import verb
from armload.core.defaults import DEMO, VIRTUAL
from armload.core.errors import UsageError
from armload.core.options import Alternatives, Exclusive, Option, Seconds, Share
from armload.core.workspace import runs_folder, sweeps_folder
from armload.engines.plan import (
    DEFAULT_PRECISION,
    DEFAULT_PRECISION_TIME_S,
    PromptText,
    TokenCount,
)
from armload.runs.request import EngineSource, Metering, Resuming, Waiting

if TYPE_CHECKING:
    from armload.analysis.repeats import Precision
    from armload.analysis.run import Run
    from armload.bench.combination import Combination
    from armload.bench.suite import Suite
    from armload.bench.sweep import SweepFolder
    from armload.core.progress import Progress
    from armload.engines.plan import Plan
    from armload.models.model import Model
    from armload.report.repeats import RepeatedResult
    from armload.report.result import Result
    from armload.runs.reach import Reach
    from armload.runs.request import Request

_TOKENS = re.compile(r"\d+(,\d+)*", re.ASCII)
"""Lengths as llama-bench's ``-p`` takes them."""


class BenchOptions(Options, OnGateways, Resuming, Metering, Waiting, EngineSource, OutputOptions):
    """A benchmark: one run, repeats of it, or a sweep."""

    common: ClassVar[frozenset[str]] = frozenset(
        {"board", "model", "prompt", "prompt_tokens", "n_predict", "threads", "repeats"}
        | {"new", "as_json"}
    )

    alternatives: ClassVar[Alternatives] = (
        Exclusive(
            (("prompt",), ("prompt_tokens",)),
            "Remove one. To run both texts and lengths in one sweep, list them in a --plan file.",
        ),
        Exclusive((("precision", "precision_time"), ("repeats", "warmups"))),
        Exclusive((("share",), ("warmups",))),
        Exclusive(
            (
                ("suite",),
                ("prompt", "prompt_tokens", "n_predict", "depth", "image", "audio", "embed"),
            ),
            "Remove one: a suite has prompts and lengths of its own.",
        ),
        Exclusive((("resident",), ("weights=mapped",))),
    )

    board: Annotated[
        Listed[str],
        Option(BOARDS, usual=STARTED, several="commas", heading="Board", harmless="in a plan"),
    ] = ()
    share: Annotated[
        bool,
        Option(
            "divide the runs of a sweep between several identical boards instead of repeating it "
            "on each",
            heading="Board",
        ),
    ] = False
    plan: Annotated[
        Path | None,
        Option(
            "a YAML file of options that describe the runs; command-line options override the "
            f"file; its keys: {', '.join(Options.model_fields)}",
            "FILE",
            heading="Plan",
        ),
    ] = None
    suite: Annotated[
        str,
        Option(
            "run a fixed set of prompts and lengths: standard, a name in suites/, or a YAML file",
            "NAME|FILE",
            heading="Plan",
            takes="file",
        ),
    ] = ""
    precision: Annotated[
        Share | None,
        Option(
            "repeat a single combination until its median time per token is known this precisely",
            "PERCENT",
            f"{DEFAULT_PRECISION:.0%}",
            heading="Repeats",
        ),
    ] = None
    precision_time: Annotated[
        Seconds | None,
        Option(
            "seconds that repeats for --precision may take beyond the first run",
            "SECONDS",
            f"{DEFAULT_PRECISION_TIME_S}",
            heading="Repeats",
        ),
    ] = None
    reference: Annotated[
        str,
        Option(
            "run whose text is the expected output, in any form that show accepts",
            "RUN",
            heading="Output",
        ),
    ] = ""
    as_json: Annotated[
        bool,
        json_option(
            ": the run (of repeats, the median one), the sweep, or the sweep on each of several "
            "boards"
        ),
    ] = False

    @model_validator(mode="after")
    def _has_one_kind_of_prompt(self) -> Self:
        for text in getattr(self, "prompt", ()):
            if _TOKENS.fullmatch(text.strip()):
                raise UsageError(
                    f"--prompt {text}: is this a text, or a length in tokens?",
                    f"For a prompt of that many tokens, use --prompt-tokens {text.strip()}; for "
                    f'the text itself, write prompt: "{text}" in a --plan file.',
                )
        return self


@verb(BenchOptions, keeps=True, results=(runs_folder, sweeps_folder))
def bench(options: BenchOptions) -> Result:
    """Run a model on a board and time every token; lists make a sweep.

    Builds and deploys what is missing first. Options with "several" take a list, such as --threads
    1,2,4; every combination is run. Several boards are compared: each runs every combination.
    Repeating an interrupted command resumes it.
    Example: armload bench --board dayu200 --model llama-3.2-1b-q4_0.gguf -n 128
    """
    from armload.analysis.repeats import Precision
    from armload.bench.engine_choice import with_chosen_engine
    from armload.bench.options import read_options
    from armload.bench.suite import refuse_fixed, suite_called
    from armload.bench.sweeping import combinations, suite_cells
    from armload.boards.board import is_group
    from armload.boards.naming import boards_called
    from armload.cli import terminal
    from armload.engines.contradictions import check_consistent
    from armload.fleet.reach import boards_reached
    from armload.fleet.sharing import check_equal
    from armload.runs import store
    from armload.runs.request import Request
    from armload.runs.spreading import check_split

    file = read_options(options.plan) if options.plan else Options()
    if file.slots:
        terminal.say(f"{options.plan}: slots has no effect: only services have slots.")
    boards = boards_called(options.board or file.board or (VIRTUAL,))
    if not all(map(is_group, boards)):
        options = options.without_usual(("split",))
    listed = options.part(Options).over(file)
    request = options.part(Request).model_copy(update={"board": boards[0]})
    reference = store.load(store.find(options.reference)) if options.reference else None
    plans = tuple(listed.plans())
    suite = suite_called(options.suite) if options.suite else None
    if suite is not None:
        refuse_fixed(file.model_dump(), suite)
        plans = tuple(suite.plans(plans))
    for plan in plans:
        check_consistent(plan)
    check_split(boards, plans)
    if len(boards) > 1 and any(plan.engine == "auto" for plan in plans):
        raise UsageError(
            "--engine auto chooses for one board or group.",
            "Name one --board, or use --engine llama.cpp,dllama to measure both on each.",
        )
    extent = "sweep" if suite is not None else _extent(listed, len(plans))
    options = _check_extent(options, extent, warmups=listed.warmups or 0)
    wanted = Precision(
        share=options.precision or DEFAULT_PRECISION,
        added_s=DEFAULT_PRECISION_TIME_S
        if options.precision_time is None
        else options.precision_time,
    )
    is_shared = options.share and len(boards) > 1
    if is_shared:
        check_equal(boards)
    elif options.given(("share",)):
        terminal.say(f"--share has no effect: {boards[0]} is the only board.")
    progress = terminal.progress()
    repeats, warmups = listed.repeats or 1, listed.warmups or 0
    _say_how_precise(plans, None if extent == "until known" else repeats)
    with boards_reached(options.scheduler, boards, progress) as reach:
        models = models_in(request, listed.models, listed.type)

        def chosen(model: Model, plan: Plan) -> Plan:
            return with_chosen_engine(request, model, plan, progress, reach)

        if suite is None:
            cells = combinations(models, plans, progress, chosen)
        else:
            cells = suite_cells(models, plans, suite, progress, chosen)
        if extent == "until known" and len(boards) == 1:
            return repeated(request, cells[0], wanted, reach, reference)
        if extent == "once" and len(boards) == 1:
            return _run(request, cells[0], reach, reference)
        counts = _Counts(repeats=repeats, warmups=warmups, reference=reference, suite=suite)
        if is_shared:
            return _shared(request, boards, cells, reach, counts)
        if len(boards) == 1:
            return _swept(request, cells, reach, counts)
        return _swept_on_each(
            *(request, boards, cells, wanted if extent == "until known" else None, reach, counts)
        )


def _run(request: Request, one: Combination, reach: Reach, reference: Run | None) -> Result:
    from armload.bench.board import run_once
    from armload.cli import terminal
    from armload.report.table import NewRun

    run, folder = run_once(request, one, terminal.progress(), reference=reference, reach=reach)
    return NewRun(run=run, folder=folder)


def repeated(
    request: Request,
    one: Combination,
    wanted: Precision,
    reach: Reach | None = None,
    reference: Run | None = None,
) -> RepeatedResult:
    """Repeat a run until its median is known, with a line for each."""
    from armload.bench.board import repeat_until_known
    from armload.cli import terminal
    from armload.report.repeats import RepeatedResult, progress_line
    from armload.runs.reach import CONNECTED

    progress = terminal.progress()
    journal, runs, stop = repeat_until_known(
        *(request, one, wanted, progress),
        reference=reference,
        reach=reach or CONNECTED,
        begun=lambda journal: journal.say_resumed(progress, "run"),
        report=lambda runs: progress.say(progress_line(runs)),
    )
    return RepeatedResult.of(journal.sweep, runs, stop, wanted)


class _Counts(TypedDict):
    repeats: int
    warmups: int
    reference: Run | None
    suite: Suite | None


def _swept(request: Request, cells: Sequence[Combination], reach: Reach, counts: _Counts) -> Result:
    from armload.cli import terminal
    from armload.report.sweep import NewSweep

    return NewSweep(journal=_sweep(request, cells, reach, counts, terminal.progress()))


def _sweep(
    request: Request,
    cells: Sequence[Combination],
    reach: Reach,
    counts: _Counts,
    progress: Progress,
    begun: Callable[[SweepFolder], object] = lambda _: None,
) -> SweepFolder:
    """Run a sweep, with a line for each run."""
    from armload.bench.sweeping import run_sweep
    from armload.report.sweep import SweepProgress

    lines = SweepProgress(progress)

    def begin(journal: SweepFolder) -> None:
        begun(journal)
        lines.begin(journal)

    return run_sweep(
        *(request, cells, progress), **counts, reach=reach, begun=begin, report=lines.report
    )


def _swept_on_each(
    request: Request,
    boards: Sequence[str],
    cells: Sequence[Combination],
    wanted: Precision | None,
    reach: Reach,
    counts: _Counts,
) -> Result:
    from functools import partial

    from armload.bench.board import repeat_until_known
    from armload.cli import terminal
    from armload.fleet.threads import on_each
    from armload.report.repeats import progress_line
    from armload.report.side_by_side import BoardsSweep

    journals: dict[str, SweepFolder] = {}

    def swept(board: str, own: Progress) -> None:
        theirs = request.model_copy(update={"board": board})
        begun = partial(journals.__setitem__, board)
        if wanted is None:
            _sweep(theirs, cells, reach, counts, own, begun)
            return
        repeat_until_known(
            *(theirs, cells[0], wanted, own),
            reference=counts["reference"],
            reach=reach,
            begun=begun,
            report=lambda runs: own.say(progress_line(runs)),
        )

    outcomes = on_each(boards, swept, terminal.progress())
    return BoardsSweep(journals=journals, errors={one.board: one.error for one in outcomes})


def _shared(
    request: Request,
    boards: Sequence[str],
    cells: Sequence[Combination],
    reach: Reach,
    counts: _Counts,
) -> Result:
    from armload.cli import terminal
    from armload.core.errors import CombinedError
    from armload.core.progress import Labelled
    from armload.fleet.sharing import share_sweep
    from armload.report.sweep import NewSweep, SweepProgress

    progress = terminal.progress()
    lines = SweepProgress(progress)
    journal, errors = share_sweep(
        *(request, boards, cells, progress),
        repeats=counts["repeats"],
        reference=counts["reference"],
        suite=counts["suite"],
        reach=reach,
        begun=lines.begin,
        report=lambda board, place, ended: lines.report(place, ended, Labelled(progress, board)),
    )
    failed = CombinedError.of_boards({board: errors.get(board) for board in boards})
    return NewSweep(journal=journal, failed=failed)


_Extent = Literal["once", "until known", "sweep"]


def _extent(listed: Options, plans: int) -> _Extent:
    """Say whether one combination is run once, or until its median is known, or several runs are.

    Args:
        plans: combinations of what is listed beside the models.
    """
    models = len(listed.models) * (len(listed.type) or 1)
    if plans * models * (listed.repeats or 1) > 1 or listed.warmups:
        return "sweep"
    return "until known" if listed.repeats is None else "once"


def _say_how_precise(plans: Sequence[Plan], repeats: int | None) -> None:
    """Say before hours of runs that these cannot give an interval."""
    from armload.bench.options import precision_note
    from armload.cli import terminal

    if note := precision_note([plan.n_predict for plan in plans], repeats):
        terminal.say(note)


def _check_extent(options: BenchOptions, extent: _Extent, *, warmups: int) -> BenchOptions:
    if extent != "until known":
        options = options.refuse(
            ("precision", "precision_time"),
            "lists, --repeats or --warmups: only a single combination is repeated until its time "
            "is known",
            "Remove one.",
        )
    if extent != "sweep" or warmups:
        options = options.refuse(
            ("share",),
            "--warmups or a single run: it divides a sweep",
            "Give lists of options, or --repeats.",
        )
    return options


class PullOptions(OnBoards, OnGateways, OutputOptions):
    """Which runs are fetched."""

    as_json: Annotated[
        bool,
        json_option(
            ": the ids of the fetched runs, and why others failed; for several boards, a list"
        ),
    ] = False


@verb(PullOptions, keeps=True, results=(runs_folder,))
def pull(options: PullOptions) -> Result:
    """Fetch the finished runs on a board that have not been fetched yet.

    If a run or a board fails, the others continue, and the exit status is not 0.
    Example: armload pull --board dayu200
    """
    from armload.boards.naming import boards_called
    from armload.cli import terminal
    from armload.fleet.reach import boards_reached
    from armload.fleet.threads import on_each
    from armload.report.on_boards import FetchedFromBoards

    boards, progress = boards_called(options.board), terminal.progress()
    with boards_reached(options.scheduler, boards, progress) as reach:
        return FetchedFromBoards(outcomes=tuple(on_each(boards, reach.pull, progress)))


_DEMO_PROMPT = "Three things to do with a small computer:\n\n1."


class DemoOptions(Waiting, OutputOptions):
    """What the demonstration runs, and where."""

    board: Annotated[
        OneBoard,
        Option(
            "a board; virtual-dayu200 has the memory and storage of a real DAYU200",
            has_own_default=True,
            harmless="in a plan",
        ),
    ] = VIRTUAL
    model: Annotated[str, Option(MODEL, harmless="in a plan")] = DEMO
    prompt: Annotated[
        PromptText,
        Option(
            "text to continue",
            usual=f"{_DEMO_PROMPT!r}; for word-problems, a problem",
            harmless="anywhere",
        ),
    ] = ""
    n_predict: Annotated[TokenCount, Option("tokens to generate", "N", harmless="anywhere")] = 32
    precision_time: Annotated[
        Seconds, Option("seconds that repeats may take beyond the first run", "SECONDS")
    ] = DEFAULT_PRECISION_TIME_S
    as_json: Annotated[bool, json_option(": the median run of the repeats")] = False


@verb(DemoOptions, keeps=True, results=(runs_folder, sweeps_folder))
def demo(options: DemoOptions) -> Result:
    """Run a small model on a virtual board, and time every token.

    Boots a virtual ARM board, copies llama.cpp (prebuilt, or compiled first) and a small published
    model to it, shows what the model writes, and repeats the run until the median time per token is
    known within 5% or a minute has passed.
    Example: armload demo
    """
    from armload.analysis.repeats import Precision
    from armload.bench.combination import combination
    from armload.boards.naming import board_called
    from armload.cli import terminal
    from armload.engines.plan import Plan
    from armload.models.find import model_called
    from armload.runs.request import Request

    request, wanted = options.part(Request), Precision(added_s=options.precision_time)
    board_called(request.board)  # a wrong name is reported before a model is downloaded
    progress = terminal.progress()
    model = model_called(options.model, progress)
    prompt = options.prompt or model.prompt or _DEMO_PROMPT
    one = combination(model, Plan(prompt=prompt, n_predict=options.n_predict), progress)
    return (repeated if options.as_json else _demonstrated)(request, one, wanted)


def _demonstrated(request: Request, one: Combination, wanted: Precision) -> RepeatedResult:
    """Repeat a run until its median is known, with the text of the first.

    On a terminal that can redraw a line it is shown as it comes.
    """
    from armload.bench.board import repeat_until_known
    from armload.cli import terminal
    from armload.report.demo import DemoResult, SpokenText
    from armload.report.repeats import progress_line

    progress = terminal.progress()
    spoken = SpokenText(progress.say, one.plan.prompt)

    def report(runs: Sequence[Run]) -> None:
        if not spoken.has_ended:  # between lines of progress it could not be read
            spoken.end(runs[-1].text)
            progress.say("")
        progress.say(progress_line(runs))

    journal, runs, stop = repeat_until_known(
        *(request, one, wanted, progress),
        begun=lambda journal: journal.say_resumed(progress, "run"),
        report=report,
        heard=spoken if terminal.redraws() else None,
    )
    return DemoResult.of(journal.sweep, runs, stop, wanted)
