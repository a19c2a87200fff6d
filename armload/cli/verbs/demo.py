"""``demo``: the whole way, with no board at hand."""

from __future__ import annotations

from invoke.context import Context
from invoke.tasks import task

from armload.cli.verb import Verb
from armload.engines.defaults import DEFAULT_PRECISION_TIME_S, DEFAULT_WAIT_S

_DEMO_N_PREDICT = "48"


@task(
    klass=Verb,
    help={
        "board": "a board; virtual-dayu200 has the memory and storage of a small real one",
        "model": "a GGUF file, hf:ORG/REPO/FILE.gguf, like:SHAPE:TYPE, word-problems:TYPE, or demo",
        "n-predict": "tokens to generate",
        "precision-time": "seconds that repeats may take beyond the first run "
        f"({DEFAULT_PRECISION_TIME_S})",
        "wait": f"seconds to wait while the board is in use ({DEFAULT_WAIT_S})",
        "json": "print one JSON document: the median run of the repeats",
    },
)
def demo(
    c: Context,
    board: str = "virtual",
    model: str = "demo",
    n_predict: str = _DEMO_N_PREDICT,
    precision_time: str = "",
    wait: str = str(DEFAULT_WAIT_S),
    json: bool = False,
) -> None:
    """Run everything on a virtual board, from source to the time of every token.

    Builds, boots a virtual ARM board, deploys, runs until the median time per token is known
    within 5% or a minute of repeats has passed, and says what limited the run.
    Example: armload demo
    """
    del c
    from armload.analysis.repeats import Precision
    from armload.bench.options import typed_options
    from armload.cli.numbers import amount
    from armload.cli.present import repeat_and_present
    from armload.runs.session import Request

    (plan,) = typed_options({"n_predict": n_predict, "temperature": 0.8}).plans()
    wanted = Precision(
        added_s=amount("precision-time", precision_time or str(DEFAULT_PRECISION_TIME_S))
    )
    request = Request(board=board, wait_s=amount("wait", wait))
    repeat_and_present(request, model, plan, wanted, as_json=json)
