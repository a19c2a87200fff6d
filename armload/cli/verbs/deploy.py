"""``deploy``: verified copies of program and model on boards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from armload.bench.options import MODEL
from armload.cli.options import OnBoards, OnGateways, OutputOptions, json_option
from armload.cli.verb import verb
from armload.core.defaults import DEMO
from armload.core.options import Option
from armload.runs.request import EngineSource, Waiting

if TYPE_CHECKING:
    from armload.core.progress import Progress
    from armload.report.result import Result
    from armload.runs.placing import Deployed


class DeployOptions(OnBoards, OnGateways, Waiting, EngineSource, OutputOptions):
    """What is copied, and where."""

    heading = "Board"

    model: Annotated[str, Option(MODEL, harmless="in a plan")] = DEMO
    verify: Annotated[
        bool, Option("read existing files again and replace damaged ones", harmless="anywhere")
    ] = False
    as_json: Annotated[bool, json_option("; for several boards, a list")] = False


@verb(DeployOptions, keeps=True)
def deploy(options: DeployOptions) -> Result:
    """Copy the engine and a model to a board and verify them there.

    Builds the engine first if necessary, and says how to run it by hand. Several boards are
    handled in parallel; if one fails, the others continue.
    Example: armload deploy --board dayu200 --model m.gguf
    """
    from armload.boards.board import load_board
    from armload.boards.naming import boards_called
    from armload.cli import terminal
    from armload.engines.completion import PROGRAM
    from armload.fleet.reach import boards_reached
    from armload.fleet.threads import on_each
    from armload.models.find import model_called
    from armload.report.on_boards import DeployedOnBoards
    from armload.runs.request import Request

    names = boards_called(options.board)
    progress = terminal.progress()
    request = options.part(Request)
    with boards_reached(options.scheduler, names, progress) as reach:
        chosen = model_called(options.model, progress)

        def put(name: str, own: Progress) -> Deployed:
            theirs = request.model_copy(update={"board": name})
            with reach.open(theirs, (PROGRAM,), own) as board:
                return board.deploy(chosen, verify=options.verify)

        outcomes = on_each(names, put, progress)
    here = {} if options.scheduler else {name: load_board(name) for name in names}
    return DeployedOnBoards(outcomes=tuple(outcomes), verified=options.verify, boards=here)
