"""A search for the best configuration: its options as values, and its result."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from armload.analysis.load.records import read_objectives
from armload.bench.options import Options
from armload.cli import terminal
from armload.cli.error_output import end_if_failed
from armload.cli.streams import show_document
from armload.cli.verbs.tune import TuneOptions
from armload.core.errors import UsageError
from armload.core.journal import resuming
from armload.core.options import MOST
from armload.core.progress import Progress
from armload.core.values import ValueList, counted
from armload.engines.plan import TUNED_REQUESTS
from armload.fleet.threads import TaskResult, on_each
from armload.report.failure import Failure
from armload.report.layout import whole
from armload.report.pages import write_page
from armload.report.tuning.page import tuning_page
from armload.report.tuning.table import TunedBoard, settings_view, tunings_view
from armload.report.tuning.view import TuningView
from armload.runs.request import Metering, Request
from armload.serving.workload import read_lengths
from armload.tuning.estimating import SearchState
from armload.tuning.outcome_words import cost_words, violation_words
from armload.tuning.reach import TuningReach
from armload.tuning.record import TuningEntry, TuningFolder
from armload.tuning.request import PROMPT_TOKENS, TunedLoad, TuningRequest, work_of
from armload.tuning.settings import words_of
from armload.tuning.space import Setting
from armload.tuning.tune import tune
from armload.tuning.wanted import SERVED, Constraints, LeastAccuracy

_QUESTIONS = 100
_LOAD = ("rate", "duration", "requests", "data", "slo", "timeout")


def check_combination(options: TuneOptions) -> TuneOptions:
    """Refuse options that do not belong to the objective or to others; return those that apply.

    Raises:
        UsageError: there is one, or one is missing.
    """
    objective = options.for_
    if options.max_kld is None:
        options = options.refuse_without(("kld_prompts",), "--max-kld", "Add --max-kld.")
    if not options.min_accuracy:
        options = options.refuse_without(("task_data",), "--min-accuracy", "Add --min-accuracy.")
    if objective != "energy":
        options = options.refuse(Metering.model_fields, f"--for {objective}", "Use --for energy.")
    if objective in PROMPT_TOKENS:
        options = options.refuse(
            ("n_predict",), f"--for {objective}, which times the prompt alone", "Remove it."
        )
    if objective not in SERVED:
        return options.refuse(
            _LOAD,
            f"--for {objective}, which measures single runs",
            "Leave that out, or tune a service: --for total-time or --for rate.",
        )
    options = options.refuse(("prompt",), f"--for {objective}", "Give requests with --data FILE.")
    if options.data and options.prompt_tokens:
        raise UsageError("--data cannot be combined with --prompt-tokens.", "Remove one.")
    if objective == "total-time":
        if options.rate is None or not (options.duration or options.requests):
            raise UsageError(
                "--for total-time needs a load: --rate with --duration or --requests.",
                "Example: --for total-time --rate 6 --duration 250",
            )
        return options.refuse(("slo",), "--for total-time", "Leave it out, or use --for rate.")
    if not options.slo:
        raise UsageError(
            "--for rate needs --slo, the latencies to meet.",
            "Example: --for rate --slo ttft=2s,tpot=500ms",
        )
    return options.refuse(
        ("rate", "duration"),
        "--for rate, which finds the rate",
        "To set the number of requests in each trial, use --requests.",
    )


def constraints_of(options: TuneOptions) -> Constraints:
    """Return what a configuration must meet.

    Raises:
        UsageError: one makes no sense.
    """
    return Constraints(
        max_kld=options.max_kld,
        min_accuracy=_least_accuracy(options.min_accuracy, options.task_data)
        if options.min_accuracy
        else None,
        max_rss_bytes=options.max_memory,
    )


def requests_of(options: TuneOptions) -> TunedLoad | None:
    """Return the load that a service is tuned for; none for an objective of single runs.

    Raises:
        UsageError: a value makes no sense.
    """
    if options.for_ not in SERVED:
        return None
    lengths = options.prompt_tokens or "128"
    read_lengths("prompt-tokens", lengths)
    if options.n_predict:
        read_lengths("n-predict", options.n_predict)
    return TunedLoad(
        rate=options.rate,
        duration_s=options.duration,
        requests=options.requests or (TUNED_REQUESTS if options.for_ == "rate" else None),
        data=options.data,
        prompt_tokens=lengths,
        n_predict=options.n_predict,
        objectives=read_objectives(options.slo),
        timeout_s=options.timeout,
    )


def work_typed(options: TuneOptions) -> Options:
    """Return what each run does; nothing for a service.

    Raises:
        UsageError: a value makes no sense, or a prompt is given twice.
    """
    if options.for_ in SERVED:
        return Options()
    return work_of(
        options.for_,
        prompt=options.prompt,
        prompt_tokens=_tokens("prompt-tokens", options.prompt_tokens, least=2),
        n_predict=_tokens("n-predict", options.n_predict, least=1),
    )


def _tokens(option: str, text: str, *, least: int) -> int | None:
    """Read a number of tokens, which for a load could be a distribution."""
    if not text:
        return None
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else -1
    if not least <= number <= MOST:
        raise UsageError(
            f"--{option}: must be a whole number from {least} to {MOST:,}, but is {text!a:.60}."
        )
    return number


def _least_accuracy(text: str, data: str) -> LeastAccuracy:
    share, _, rest = text.partition(":")
    task, _, questions = rest.partition(":")
    try:
        number = float(share)
    except ValueError:
        number = math.nan
    if not 0 < number < 1 or not task:
        raise UsageError(
            f"--min-accuracy {text!a}: must be SHARE:TASK or SHARE:TASK:QUESTIONS, with a share "
            "above 0 and below 1.",
            "Example: --min-accuracy 0.5:gsm8k:200",
        )
    count = _tokens("min-accuracy", questions, least=1) or _QUESTIONS
    return LeastAccuracy(share=number, task=task, data=data, questions=count)


def tune_and_present(
    request: Request,
    boards: Sequence[str],
    goal: TuningRequest,
    reach: TuningReach,
    *,
    output: Path | None,
    as_json: bool,
) -> None:
    """Search on every board, with a line for each trial, and show what was found.

    Raises:
        ArmloadError: any of its kinds; the trials that were made are kept.
        Exit: it failed on one of several boards; what the others found is shown.
    """

    def tuned(board: str, own: Progress) -> TuningFolder:
        def begun(tuned: TuningFolder) -> None:
            done = len(tuned.entries)
            if done:
                own.say(resuming(tuned.tuning.id, counted(done, "trial")))
            size = counted(tuned.tuning.space.size, "configuration")
            own.say(f"The search space has {size}. Trials are kept in {tuned.folder}.")

        def report(entry: TuningEntry, state: SearchState) -> None:
            own.say(trial_line(goal, entry, state))

        theirs = request.model_copy(update={"board": board})
        return tune(theirs, goal, own, output=output, reach=reach, begun=begun, report=report)

    outcomes = on_each(boards, tuned, terminal.progress())
    found = [one.result for one in outcomes if one.result is not None]
    if len(boards) == 1:
        show_tuning(found[0], as_json=as_json)
    elif as_json:
        show_document(ValueList[TunedBoard](tuple(map(_tuned_board, outcomes))))
    elif found:
        views = [TuningView.of(each) for each in found]
        terminal.show(tunings_view(views))
        for view, each in zip(views, found, strict=True):
            page = write_page(tuning_page(view, each.folder), each.folder)
            terminal.show(whole(f"page    {page}"))
    end_if_failed({one.board: one.error for one in outcomes})


def _tuned_board(one: TaskResult[str, TuningFolder]) -> TunedBoard:
    return TunedBoard(
        board=one.board,
        tuning=one.result.document() if one.result else None,
        error=Failure.of(one.error) if one.error else None,
    )


def show_tuning(tuned: TuningFolder, *, as_json: bool) -> None:
    """Show what a search has found."""
    if as_json:
        show_document(tuned.document())
        return
    view = TuningView.of(tuned)
    result = view.result
    if view.steps:
        terminal.show(settings_view(view))
        terminal.show("")
    if result is None:
        terminal.show(
            f"{tuned.tuning.id} is not finished: {counted(len(tuned.entries), 'trial')} so far."
        )
        return
    terminal.show(result.sentence)
    if result.violation is not None:
        terminal.show(violation_words(tuned.tuning, result.violation))
    terminal.show(whole(f"plan    {result.plan}"))
    terminal.show(whole(f"tuning  {tuned.folder}"))
    terminal.show(whole(f"page    {write_page(tuning_page(view, tuned.folder), tuned.folder)}"))


def trial_line(goal: TuningRequest, entry: TuningEntry, state: SearchState) -> str:
    outcome, setting = entry.outcome, entry.trial.setting
    words = words_of(setting, Setting(choices=dict.fromkeys(setting.choices)), {})
    figure = cost_words(goal.objective, outcome.cost) if outcome.cost else ""
    ended = "" if outcome.status == "measured" else f"{outcome.status}: {outcome.reason}"
    best = f"best: {cost_words(goal.objective, state.leader.cost)}" if state.leader else ""
    said = "; ".join(each for each in (figure, ended, best) if each)
    return f"Trial {entry.trial.number + 1}, {words}: {said}"
