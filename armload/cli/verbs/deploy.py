"""``deploy``: verified copies of program and model on boards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from armload.bench.options import MODEL
from armload.cli.options import A_BOARD, Boards, OutputOptions
from armload.cli.verb import verb
from armload.core.options import Option
from armload.runs.request import EngineSource, Waiting

if TYPE_CHECKING:
    from armload.cli.parallel import BoardResult
    from armload.report.failure import DeployedBoard
    from armload.runs.placing import Deployed


class DeployOptions(Waiting, EngineSource, OutputOptions):
    """What is copied, and where."""

    heading = "Board"

    board: Annotated[Boards, Option(A_BOARD, several="commas")] = ("virtual",)
    model: Annotated[str, Option(MODEL)] = "demo"
    verify: Annotated[bool, Option("read existing files again and replace damaged ones")] = False
    as_json: Annotated[
        bool, Option("print one JSON document; for several boards, a list", name="json")
    ] = False


@verb(DeployOptions)
def deploy(options: DeployOptions) -> None:
    """Copy the engine and a model to a board and verify them there.

    Builds the engine first if necessary. Several boards are served in parallel; one that fails
    does not stop the others. Example: armload deploy --board dayu200 --model m.gguf
    """
    from armload.boards.board import load_board
    from armload.cli import terminal
    from armload.cli.parallel import at_once, end_if_failed
    from armload.cli.streams import show_document
    from armload.core.progress import Labelled
    from armload.core.values import ValueList
    from armload.models.find import model_called
    from armload.report.failure import DeployedBoard
    from armload.runs.placing import put_in_place
    from armload.runs.request import Request

    names = options.board
    for name in names:
        load_board(name)  # a misspelt name is reported before any board is served
    progress = terminal.progress()
    request = options.part(Request).model_copy(update={"board": names[0]})
    chosen = model_called(options.model, progress)
    if len(names) == 1:
        done = put_in_place(request, chosen, progress, verify=options.verify)
        if options.as_json:
            show_document(done)
        else:
            _show(names[0], done, verify=options.verify)
        return

    def serve(name: str) -> Deployed:
        theirs = request.model_copy(update={"board": name})
        return put_in_place(theirs, chosen, Labelled(progress, name), verify=options.verify)

    outcomes = at_once(names, serve)
    if options.as_json:
        show_document(ValueList[DeployedBoard](tuple(map(_outcome, outcomes))))
    for outcome in outcomes:
        if outcome.result is not None and not options.as_json:
            _show(outcome.name, outcome.result, verify=options.verify)
    end_if_failed(outcomes)


def _show(name: str, done: Deployed, *, verify: bool) -> None:
    from armload.cli import terminal

    word = "Put" if done.sent else "Verified" if verify else "Already"
    terminal.show(f"{word} on {name}:\n  {done.program}\n  {done.model}")


def _outcome(outcome: BoardResult[Deployed]) -> DeployedBoard:
    from armload.report.failure import DeployedBoard, Failure

    placed = dict(outcome.result) if outcome.result is not None else {}
    error = Failure.of(outcome.error) if outcome.error is not None else None
    return DeployedBoard(board=outcome.name, **placed, error=error)
