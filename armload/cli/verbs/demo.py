"""``demo``: the whole way, with no board at hand."""

from __future__ import annotations

from typing import Annotated

from armload.cli.options import MODEL, Output
from armload.cli.verb import verb
from armload.core.options import Option, Seconds
from armload.engines.defaults import DEFAULT_PRECISION_TIME_S
from armload.engines.plan import TokenCount
from armload.runs.request import Waiting


class DemoOptions(Waiting, Output):
    """What the demonstration runs, and where."""

    board: Annotated[
        str,
        Option("a board; virtual-dayu200 has the memory and storage of a small real one"),
    ] = "virtual"
    model: Annotated[str, Option(MODEL)] = "demo"
    n_predict: Annotated[TokenCount, Option("tokens to generate", "N")] = 48
    precision_time: Annotated[
        Seconds, Option("seconds that repeats may take beyond the first run", "SECONDS")
    ] = DEFAULT_PRECISION_TIME_S
    as_json: Annotated[
        bool, Option("print one JSON document: the median run of the repeats", name="json")
    ] = False


@verb(DemoOptions)
def demo(options: DemoOptions) -> None:
    """Run everything on a virtual board, from source to the time of every token.

    Builds, boots a virtual ARM board, deploys, runs until the median time per token is known
    within 5% or a minute of repeats has passed, and says what limited the run.
    Example: armload demo
    """
    from armload.analysis.repeats import Precision
    from armload.cli.present import repeat_and_present
    from armload.engines.plan import Plan
    from armload.runs.request import Request

    repeat_and_present(
        options.part(Request),
        options.model,
        Plan(n_predict=options.n_predict, temperature=0.8),
        Precision(added_s=options.precision_time),
        as_json=options.as_json,
    )
