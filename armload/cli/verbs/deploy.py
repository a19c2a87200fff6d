"""``deploy``: verified copies of program and model on a board."""

from __future__ import annotations

from invoke.context import Context
from invoke.tasks import task

from armload.cli.verb import Verb


@task(
    klass=Verb,
    help={
        "board": "a file in boards/, such as virtual or dayu200",
        "model": "a GGUF file, hf:ORG/REPO/FILE.gguf, or demo: one of random weights",
        "source": "a file in toolchains/sources/, a llama.cpp folder, or a git address",
        "ref": "branch, tag or commit, where the source is a git repository",
        "json": "print one JSON document",
    },
)
def deploy(
    c: Context,
    board: str = "virtual",
    model: str = "demo",
    source: str = "",
    ref: str = "",
    json: bool = False,
) -> None:
    """Put the engine and a model on a board, checked there.

    Builds first what is not built yet. Example: armload deploy --board dayu200 --model m.gguf
    """
    del c
    from armload.bench.runner import Request, chosen_model, prepared
    from armload.cli import terminal

    request = Request(board=board, model=model, source=source, ref=ref)
    progress = terminal.progress()
    model_facts = chosen_model(request, progress)
    with prepared(request, model_facts, progress) as (_, ready):
        done = ready.deployment
    if json:
        terminal.show_json(done.model_dump_json(exclude={"found"}))
        return
    word = "Put" if done.sent else "Already"
    terminal.results().print(
        f"{word} on {board}:\n  {done.program}\n  {done.model}", highlight=False, soft_wrap=True
    )
