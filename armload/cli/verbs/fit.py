"""``fit``: which models fit on a board, and how fast they would be, before any is uploaded."""

from __future__ import annotations

from invoke.context import Context
from invoke.tasks import task

from armload.cli.flags import BOARD_HELP, JSON_HELP, SOURCE_HELP
from armload.cli.verb import Verb
from armload.engines.defaults import DEFAULT_WAIT_S

_PROMPT_TOKENS = 128


@task(
    klass=Verb,
    help={
        **BOARD_HELP,
        "model": "a GGUF file, hf:ORG/REPO/FILE.gguf, like:SHAPE:TYPE, word-problems:TYPE, or "
        "demo; several: a,b (demo)",
        "type": "predict the models as they would be in these file types, such as Q4_K_M; several: "
        "a,b (as they are)",
        "context": "size of the KV cache in tokens (enough for prompt and 128 tokens of output)",
        "prompt-tokens": f"length of the prompt ({_PROMPT_TOKENS})",
        "threads": "worker threads (chosen by the engine)",
        "wait": f"seconds to wait while the board is in use ({DEFAULT_WAIT_S})",
        **SOURCE_HELP,
        **JSON_HELP,
    },
)
def fit(
    c: Context,
    board: str = "virtual",
    model: str = "demo",
    type: str = "",  # noqa: A002 - the name of the option
    context: str = "",
    prompt_tokens: str = "",
    threads: str = "",
    wait: str = str(DEFAULT_WAIT_S),
    source: str = "",
    ref: str = "",
    compiler: str = "",
    on: str = "",
    json: bool = False,
) -> None:
    """Predict whether models fit on a board, and how fast they would be there.

    No model is uploaded: slices of it run on the board. For models on the hub, only the header is
    downloaded. If the board does not answer, the facts in its file are used.
    Example: armload fit --board dayu200 --model like:llama-3.1-8b:Q2_K,small.gguf
    """
    del c
    from pathlib import Path

    from armload.bench.fitting import fit as predict_fit
    from armload.bench.options import typed_options
    from armload.cli import terminal
    from armload.cli.document import show_document
    from armload.cli.numbers import amount
    from armload.core.disk import is_there
    from armload.models.file_types import read_file_types
    from armload.report.fitted import fit_view
    from armload.runs.session import Request

    typed = {
        "context": context,
        "prompt_tokens": prompt_tokens or str(_PROMPT_TOKENS),
        "threads": threads,
    }
    (plan,) = typed_options({name: text for name, text in typed.items() if text}).plans()
    names = [model] if is_there(Path(model)) else model.split(",")
    request = Request(
        board=board,
        source=source,
        ref=ref,
        compiler=compiler,
        on=on,
        wait_s=amount("wait", wait),
    )
    file_types = read_file_types(type) if type else ()
    found = predict_fit(request, names, plan, terminal.progress(), file_types=file_types)
    if json:
        show_document(found)
    else:
        terminal.show(fit_view(found))
