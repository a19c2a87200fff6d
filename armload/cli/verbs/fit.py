"""``fit``: which models fit on a board, and how fast they would be, before any is uploaded."""

from __future__ import annotations

from typing import Annotated

from armload.bench.options import MODEL
from armload.cli.options import FileTypes, OnBoard, OutputOptions
from armload.cli.verb import verb
from armload.core.options import Names, Option
from armload.engines.plan import Computation, PromptTokens
from armload.runs.request import EngineSource, Waiting


class FitOptions(OnBoard, Waiting, EngineSource, Computation, OutputOptions):
    """What is predicted."""

    heading = "Plan"

    hardware: Annotated[
        Names,
        Option(
            "instead of a board: hardware from the catalogue, such as raspberry-pi-5-8gb, or all",
            "NAME",
            several="commas",
            heading="Board",
        ),
    ] = ()
    model: Annotated[Names, Option(MODEL, usual="the current models", several="files")] = ()
    type: Annotated[
        FileTypes,
        Option(
            "predict for the models quantised to these file types, such as Q4_K_M",
            "TYPE",
            "unchanged",
            "commas",
        ),
    ] = ()
    prompt_tokens: Annotated[PromptTokens, Option("length of the prompt", "TOKENS")] = 128


@verb(FitOptions)
def fit(options: FitOptions) -> None:
    """Predict whether models fit on a board, and how fast they would be there.

    No model is uploaded: its operations are timed on the board, at most 25 s. For models on the
    hub, only the header is downloaded. Without --model, current models are listed by speed, and
    nothing is timed. If the board does not answer, the facts in its file are used. With
    --hardware, boards of the catalogue are compared, and no board is needed.
    Example: armload fit --board dayu200 --model like:llama-3.1-8b:Q2_K,small.gguf
    Example: armload fit --hardware all --model like:llama-3.1-8b:Q4_K_M
    """
    from armload.bench.fitting import fit as predict_fit
    from armload.bench.fitting import fit_hardware
    from armload.cli import terminal
    from armload.cli.streams import show_document
    from armload.engines.plan import Plan
    from armload.report.fitted import fit_view, hardware_view, listing_view
    from armload.runs.request import Request

    if options.hardware:
        options.refuse(("board", "wait_s"), "--hardware", "Remove one.")
        compared = fit_hardware(
            options.part(Request),
            options.hardware,
            options.model,
            options.part(Plan),
            terminal.progress(),
            file_types=options.type,
        )
        if options.as_json:
            show_document(compared)
        elif options.model:
            terminal.show(hardware_view(compared))
        else:
            terminal.show(listing_view(compared.boards[0]))
        return
    found = predict_fit(
        options.part(Request),
        options.model,
        options.part(Plan),
        terminal.progress(),
        file_types=options.type,
    )
    if options.as_json:
        show_document(found)
    else:
        terminal.show(fit_view(found) if options.model else listing_view(found))
