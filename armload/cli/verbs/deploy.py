"""``deploy``: verified copies of program and model on a board."""

from __future__ import annotations

from invoke.context import Context
from invoke.tasks import task

from armload.cli.verb import Verb


@task(
    klass=Verb,
    help={
        "board": "a file in boards/, such as virtual or dayu200",
        "model": "a GGUF file, or hf:ORG/REPO/FILE.gguf; left out: the demo's model",
        "source": "a llama.cpp folder; left out: the pinned source archive",
        "json": "print one JSON document",
    },
)
def deploy(
    c: Context, board: str = "virtual", model: str = "", source: str = "", json: bool = False
) -> None:
    """Put the engine and a model on a board, each checked where it arrives.

    Builds first what is not built yet. Example: armload deploy --board dayu200 --model m.gguf
    """
    del c
    from armload.bench.runner import Request, prepare
    from armload.cli import terminal

    ready = prepare(Request(board=board, model=model, source=source), terminal.progress())
    ready.host.close()
    if json:
        terminal.show_json(ready.deployment.model_dump_json())
        return
    terminal.results().print(
        f"On {board}: {ready.deployment.program}\n{' ' * (5 + len(board))}{ready.deployment.model}",
        highlight=False,
        soft_wrap=True,
    )
