"""``deploy``: verified copies of program and model on boards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from invoke.context import Context
from invoke.tasks import task

from armload.cli.flags import SOURCE_HELP
from armload.cli.verb import Verb
from armload.engines.defaults import DEFAULT_WAIT_S

if TYPE_CHECKING:
    from armload.cli.parallel import BoardResult
    from armload.report.failure import DeployedBoard
    from armload.runs.placing import Deployed


@task(
    klass=Verb,
    help={
        "board": "a board: the name of a file in boards/, such as dayu200; several: a,b,c",
        "model": "a GGUF file, hf:ORG/REPO/FILE.gguf, like:SHAPE:TYPE, word-problems:TYPE, or demo",
        "wait": f"seconds to wait while a board is in use ({DEFAULT_WAIT_S})",
        **SOURCE_HELP,
        "verify": "read existing files again and replace damaged ones",
        "json": "print one JSON document; for several boards, a list",
    },
)
def deploy(
    c: Context,
    board: str = "virtual",
    model: str = "demo",
    wait: str = str(DEFAULT_WAIT_S),
    source: str = "",
    ref: str = "",
    compiler: str = "",
    on: str = "",
    verify: bool = False,
    json: bool = False,
) -> None:
    """Copy the engine and a model to a board and verify them there.

    Builds the engine first if necessary. Several boards are served in parallel; one that fails
    does not stop the others. Example: armload deploy --board dayu200 --model m.gguf
    """
    del c
    from armload.boards.board import load_board
    from armload.cli import terminal
    from armload.cli.document import show_document
    from armload.cli.numbers import amount
    from armload.cli.parallel import at_once, board_names, end_if_failed
    from armload.core.progress import Labelled
    from armload.core.values import ValueList
    from armload.models.find import model_called
    from armload.report.failure import DeployedBoard
    from armload.runs.placing import put_in_place
    from armload.runs.session import Request

    names = board_names(board)
    for name in names:
        load_board(name)  # a misspelt name is reported before any board is served
    progress = terminal.progress()
    request = Request(
        board=names[0],
        source=source,
        ref=ref,
        compiler=compiler,
        on=on,
        wait_s=amount("wait", wait),
    )
    chosen = model_called(model, progress)
    if len(names) == 1:
        done = put_in_place(request, chosen, progress, verify=verify)
        if json:
            show_document(done)
        else:
            _show(names[0], done, verify=verify)
        return

    def serve(name: str) -> Deployed:
        theirs = request.model_copy(update={"board": name})
        return put_in_place(theirs, chosen, Labelled(progress, name), verify=verify)

    outcomes = at_once(names, serve)
    if json:
        show_document(ValueList[DeployedBoard](tuple(map(_outcome, outcomes))))
    for outcome in outcomes:
        if outcome.result is not None and not json:
            _show(outcome.name, outcome.result, verify=verify)
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
