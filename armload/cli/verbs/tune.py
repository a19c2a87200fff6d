"""``tune``: the settings with which a model is fastest on a board."""

from __future__ import annotations

from typing import TYPE_CHECKING

from armload.cli.tuning_options import (
    TuneOptions,
    check_combination,
    constraints_of,
    requests_of,
    work_typed,
)
from armload.cli.verb import verb
from armload.core.workspace import runs_folder, tunings_folder

if TYPE_CHECKING:
    from armload.core.progress import Progress
    from armload.report.result import Result
    from armload.tuning.record import TuningFolder


@verb(TuneOptions, keeps=True, results=(runs_folder, tunings_folder))
def tune(options: TuneOptions) -> Result:
    """Find the fastest configuration for a model on a board.

    Starts with short trials, and gives longer ones to the best configurations. The winner is
    compared with the defaults in alternating runs, and written to a plan file. Several boards are
    tuned in parallel, independently. Repeating an interrupted command resumes it.
    Example: armload tune --board dayu200 --model m.gguf --for decode --max-time 30m
    """
    from armload.boards.naming import boards_called
    from armload.cli import terminal
    from armload.cli.options import output_file
    from armload.evaluation.logits.computing import read_prompts
    from armload.fleet.reach import boards_reached
    from armload.fleet.threads import on_each
    from armload.report.tuning.result import TunedOnBoards, trial_line
    from armload.runs.request import Request
    from armload.tuning.request import TuningRequest
    from armload.tuning.tune import tune as search

    options = check_combination(options)
    goal = TuningRequest(
        model=options.model,
        objective=options.for_,
        narrowing=options.space,
        constraints=constraints_of(options),
        work=work_typed(options),
        requests=requests_of(options),
        kld_prompts=read_prompts(options.kld_prompts) if options.kld_prompts else (),
        seed=options.seed,
        max_trials=options.max_trials,
        max_time_s=options.max_time,
    )
    boards = boards_called(options.board)
    if len(boards) > 1:
        options = options.refuse(
            ("output",),
            "several boards, each of which gets its own plan file",
            "Remove it: the files are named tuned-BOARD-MODEL.yaml.",
        )
    output, progress = output_file(options.output) if options.output else None, terminal.progress()
    with boards_reached(options.scheduler, boards, progress) as reach:

        def tuned(board: str, own: Progress) -> TuningFolder:
            return search(
                options.part(Request).model_copy(update={"board": board}),
                goal,
                own,
                output=output,
                reach=reach,
                begun=lambda journal: journal.say_begun(own),
                report=lambda entry, state: own.say(trial_line(goal, entry, state)),
            )

        return TunedOnBoards(outcomes=tuple(on_each(boards, tuned, progress)))
