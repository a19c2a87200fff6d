"""``deploy``: verified copies of program and model on boards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from invoke.context import Context
from invoke.exceptions import Exit
from invoke.tasks import task

from armload.cli.verb import Verb, show_error

if TYPE_CHECKING:
    from armload.bench.session import Request
    from armload.cli.several import Outcome
    from armload.core.progress import Progress
    from armload.deploy.deployment import Deployment
    from armload.models.model import Model


@task(
    klass=Verb,
    help={
        "board": "a file in boards/, such as virtual or dayu200; several: a,b,c",
        "model": "a GGUF file, hf:ORG/REPO/FILE.gguf, like:SHAPE:TYPE, or demo",
        "source": "a file in toolchains/sources/, a llama.cpp folder, or a git address",
        "ref": "branch, tag or commit, where the source is a git repository",
        "compiler": "zig, gnu or native, as for build",
        "on": "compile the engine on that board, as for build",
        "verify": "read again all that is there, and replace what is damaged",
        "json": "print one JSON document; of several boards, a list",
    },
)
def deploy(
    c: Context,
    board: str = "virtual",
    model: str = "demo",
    source: str = "",
    ref: str = "",
    compiler: str = "",
    on: str = "",
    verify: bool = False,
    json: bool = False,
) -> None:
    """Put the engine and a model on a board, checked there.

    Builds first what is not built yet. Several boards are served at once; one that fails does not
    stop the others. Example: armload deploy --board dayu200 --model m.gguf
    """
    del c
    from armload.bench.session import Request, chosen_model
    from armload.cli import terminal
    from armload.cli.several import at_once, board_names
    from armload.core.progress import Labelled

    names = board_names(board)
    progress = terminal.progress()
    request = Request(board=names[0], source=source, ref=ref, compiler=compiler, on=on)
    chosen = chosen_model(model, progress)
    if len(names) == 1:
        done = _deployed(request, chosen, progress, verify=verify)
        if json:
            terminal.show_json(done.model_dump_json(exclude={"found"}))
        else:
            _show(names[0], done, verify=verify)
        return

    def serve(name: str) -> Deployment:
        theirs = request.model_copy(update={"board": name})
        return _deployed(theirs, chosen, Labelled(progress, name), verify=verify)

    outcomes = at_once(names, serve)
    if json:
        terminal.show_json(_as_json(outcomes))
    for outcome in outcomes:
        if outcome.result is not None and not json:
            _show(outcome.name, outcome.result, verify=verify)
    failed = {one.name: one.error for one in outcomes if one.error is not None}
    for name, error in failed.items():
        begins = "" if error.message.startswith(name) else f"{name}: "
        show_error(f"{begins}{error.message}", error.remedy)
    if failed:
        show_error(f"{len(failed)} of {len(names)} boards failed: {', '.join(failed)}.")
        raise Exit(code=next(iter(failed.values())).exit_status)


def _deployed(request: Request, model: Model, progress: Progress, *, verify: bool) -> Deployment:
    from armload.bench.session import session

    with session(request, progress) as where, where.leased(progress):
        done = where.deployed(model, progress)
        if not verify:
            return done
        again = where.deployed(model, progress, verify=True)
        return again.model_copy(update={"sent": again.sent or done.sent})


def _show(name: str, done: Deployment, *, verify: bool) -> None:
    from armload.cli import terminal

    word = "Put" if done.sent else "Verified" if verify else "Already"
    terminal.results().print(
        f"{word} on {name}:\n  {done.program}\n  {done.model}", highlight=False, soft_wrap=True
    )


def _as_json(outcomes: list[Outcome[Deployment]]) -> str:
    import json

    told = []
    for outcome in outcomes:
        entry: dict[str, object] = {"board": outcome.name}
        if outcome.result is not None:
            entry |= outcome.result.model_dump(mode="json", exclude={"found"})
        if outcome.error is not None:
            entry["error"] = str(outcome.error)
            entry["status"] = outcome.error.exit_status
        told.append(entry)
    return json.dumps(told)
