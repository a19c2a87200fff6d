"""``demo``, ``bench`` and ``pull``: runs on a board, with every token's time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from invoke.exceptions import Exit
from pydantic import model_validator

from armload.bench.options import MODEL, Listed, Options
from armload.cli.error_output import end_if_failed, show_error
from armload.cli.options import BOARDS, OnBoards, OneBoard, OnGateways, OutputOptions, models_in
from armload.cli.verb import verb
from armload.core.defaults import DEMO, VIRTUAL
from armload.core.errors import UsageError
from armload.core.options import Alternatives, Option, Seconds, Share
from armload.core.workspace import runs_folder, sweeps_folder
from armload.engines.plan import (
    DEFAULT_PRECISION,
    DEFAULT_PRECISION_TIME_S,
    PromptText,
    TokenCount,
)
from armload.runs.request import EngineSource, Metering, Resuming, Waiting

if TYPE_CHECKING:
    from armload.engines.plan import Plan
    from armload.report.failure import FetchedRuns
    from armload.runs.fetch import Pulled

_TOKENS = re.compile(r"\d+(,\d+)*", re.ASCII)
"""Lengths as llama-bench's ``-p`` takes them."""


class BenchOptions(Options, OnGateways, Resuming, Metering, Waiting, EngineSource, OutputOptions):
    """A benchmark: one run, repeats of it, or a sweep."""

    alternatives: ClassVar[Alternatives] = (
        (("prompt",), ("prompt_tokens",)),
        (("precision", "precision_time"), ("repeats", "warmups")),
        (("share",), ("warmups",)),
        (("weights=mapped",), ("resident",)),
    )

    board: Annotated[
        Listed[str],
        Option(BOARDS, usual=VIRTUAL, several="commas", heading="Board", harmless="in a plan"),
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
        Option(
            "print one JSON document: the run (of repeats, the median one), the sweep, or the "
            "sweep on each of several boards",
            name="json",
            harmless="anywhere",
        ),
    ] = False

    @model_validator(mode="after")
    def _has_one_kind_of_prompt(self) -> Self:
        texts = getattr(self, "prompt", ())
        if texts and getattr(self, "prompt_tokens", ()):
            raise UsageError(
                "--prompt cannot be combined with --prompt-tokens.",
                "Remove one. To run both texts and lengths in one sweep, list them in a --plan "
                "file.",
            )
        for text in texts:
            if _TOKENS.fullmatch(text.strip()):
                raise UsageError(
                    f"--prompt {text}: is this a text, or a length in tokens?",
                    f"For a prompt of that many tokens, use --prompt-tokens {text.strip()}; for "
                    f'the text itself, write prompt: "{text}" in a --plan file.',
                )
        return self


@verb(BenchOptions, keeps=True, results=(runs_folder, sweeps_folder))
def bench(options: BenchOptions) -> None:
    """Run a model on a board and time every token; lists make a sweep.

    Builds and deploys what is missing first. Options with "several" take a list, such as --threads
    1,2,4; every combination is run. Several boards are compared: each runs every combination.
    Repeating an interrupted command resumes it.
    Example: armload bench --board dayu200 --model llama-3.2-1b-q4_0.gguf -n 128
    """
    from armload.analysis.repeats import Precision
    from armload.bench.options import read_options
    from armload.bench.sweeping import combinations
    from armload.boards.board import is_group
    from armload.boards.naming import boards_called
    from armload.cli import terminal
    from armload.cli.present import bench_and_present, repeat_and_present, sweep_and_present
    from armload.cli.present_boards import bench_on_each_and_present, share_and_present
    from armload.engines.contradictions import check_consistent
    from armload.fleet.reach import boards_reached
    from armload.fleet.shared_sweep import check_equal
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
    for plan in plans:
        check_consistent(plan)
    check_split(boards, plans)
    extent = _extent(listed, len(plans))
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
    progress, as_json = terminal.progress(), options.as_json
    repeats, warmups = listed.repeats or 1, listed.warmups or 0
    _say_how_precise(plans, None if extent == "until known" else repeats)
    with boards_reached(options.scheduler, boards, progress) as reach:
        models = models_in(request, listed.models, listed.type)
        cells = combinations(models, plans, progress)
        if is_shared:
            share_and_present(
                *(request, boards, cells, reach),
                repeats=repeats,
                as_json=as_json,
                reference=reference,
            )
        elif len(boards) > 1:
            bench_on_each_and_present(
                *(request, boards, cells, wanted if extent == "until known" else None, reach),
                repeats=repeats,
                warmups=warmups,
                as_json=as_json,
                reference=reference,
            )
        elif extent == "until known":
            repeat_and_present(
                *(request, cells[0], wanted, reach), as_json=as_json, reference=reference
            )
        elif extent == "once":
            bench_and_present(request, cells[0], reach, as_json=as_json, reference=reference)
        else:
            sweep_and_present(
                *(request, cells, reach),
                repeats=repeats,
                warmups=warmups,
                as_json=as_json,
                reference=reference,
            )


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
        Option(
            "print one JSON document: the ids of the fetched runs, and why others failed; for "
            "several boards, a list",
            name="json",
            harmless="anywhere",
        ),
    ] = False


@verb(PullOptions, keeps=True, results=(runs_folder,))
def pull(options: PullOptions) -> None:
    """Fetch the finished runs on a board that have not been fetched yet.

    If a run or a board fails, the others continue, and the exit status is not 0.
    Example: armload pull --board dayu200
    """
    from armload.boards.naming import boards_called
    from armload.cli import terminal
    from armload.cli.streams import show_document
    from armload.core.values import ValueList
    from armload.fleet.reach import boards_reached
    from armload.fleet.threads import on_each
    from armload.report.failure import FetchedBoard
    from armload.report.table import list_table

    boards, progress = boards_called(options.board), terminal.progress()
    with boards_reached(options.scheduler, boards, progress) as reach:
        outcomes = on_each(boards, reach.pull, progress)
    pulled = {one.board: one.result for one in outcomes if one.result is not None}
    runs = [run for its in pulled.values() for run in its.runs]
    lost = {name: its.lost for name, its in pulled.items() if its.lost}
    if options.as_json and len(outcomes) == 1:
        show_document(_fetched(*pulled.values()))
    elif options.as_json:
        documents = (
            FetchedBoard.of(one.board, _fetched(one.result) if one.result else None, one.error)
            for one in outcomes
        )
        show_document(ValueList[FetchedBoard](tuple(documents)))
    elif runs:
        terminal.show(list_table(runs))
    elif pulled and not lost:
        terminal.show(f"There is nothing to fetch from {', '.join(pulled)}.")
    for name, errors in lost.items():
        remedies = dict.fromkeys(error.remedy for error in errors.values() if error.remedy)
        show_error(
            f"{len(errors)} of {len(pulled[name].runs) + len(errors)} runs on {name} could not be "
            f"fetched: {', '.join(errors)}.",
            " ".join(remedies),
        )
    end_if_failed({one.board: one.error for one in outcomes})
    if lost:
        raise Exit(code=next(iter(next(iter(lost.values())).values())).exit_status)


def _fetched(pulled: Pulled) -> FetchedRuns:
    from armload.report.failure import Failure, FetchedRuns, UnfetchedRun

    failed = tuple(
        UnfetchedRun(run=run, error=Failure.of(error)) for run, error in pulled.lost.items()
    )
    return FetchedRuns(runs=tuple(run.id for run in pulled.runs), failed=failed)


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
    as_json: Annotated[
        bool,
        Option(
            "print one JSON document: the median run of the repeats",
            name="json",
            harmless="anywhere",
        ),
    ] = False


@verb(DemoOptions, keeps=True, results=(runs_folder, sweeps_folder))
def demo(options: DemoOptions) -> None:
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
    from armload.cli.present import demonstrate, repeat_and_present
    from armload.engines.plan import Plan
    from armload.models.find import model_called
    from armload.runs.request import Request

    request, wanted = options.part(Request), Precision(added_s=options.precision_time)
    board_called(request.board)  # a wrong name is reported before a model is downloaded
    progress = terminal.progress()
    model = model_called(options.model, progress)
    prompt = options.prompt or model.prompt or _DEMO_PROMPT
    one = combination(model, Plan(prompt=prompt, n_predict=options.n_predict), progress)
    if options.as_json:
        repeat_and_present(request, one, wanted, as_json=True)
    else:
        demonstrate(request, one, wanted)
