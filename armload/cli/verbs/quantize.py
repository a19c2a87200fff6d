"""``model.quantize``: a model in smaller types, made by llama.cpp's own llama-quantize."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from armload.cli.options import FileTypes, OutputOptions
from armload.cli.verb import verb
from armload.core.errors import UsageError
from armload.core.options import Option
from armload.runs.request import Request, SourceRef, Waiting

if TYPE_CHECKING:
    from armload.report.result import Result


class QuantizeOptions(Waiting, SourceRef, OutputOptions):
    """A model, the file types that are made of it, and what is found out about them."""

    heading = "Quantisation"

    base: Annotated[
        str,
        Option(
            "a model in F16, BF16 or F32, as for --model of bench", is_argument=True, takes="model"
        ),
    ]
    type: Annotated[
        FileTypes,
        Option(
            "file types of llama-quantize, such as Q4_K_M",
            several="commas",
            heading="Plan",
            harmless="anywhere",
        ),
    ]
    calibration: Annotated[
        Path | None,
        Option("text file from which llama-imatrix first computes an importance matrix", "FILE"),
    ] = None
    allow_requantize: Annotated[
        bool, Option("accept a model that is already quantised, despite the loss of quality")
    ] = False
    kld: Annotated[
        bool,
        Option(
            "compute the KL divergence from the base on this machine",
            usual="if the base is not quantised and smaller than 1 GB",
            harmless="anywhere",
        ),
    ] = False
    board: Annotated[
        str,
        Option(
            "also predict the time per token on this board", heading="Board", harmless="in a plan"
        ),
    ] = ""
    on: Annotated[
        str,
        Option(
            "quantise on that board and fetch the result", "BOARD", "this machine", heading="Build"
        ),
    ] = ""
    output: Annotated[
        str,
        Option(
            "folder to copy the results to",
            "PATH",
            "they stay in the cache",
            heading="Output",
        ),
    ] = ""


@verb(QuantizeOptions, keeps=True)
def quantize(options: QuantizeOptions) -> Result:
    """Quantise a model, and show size, speed and loss of each type.

    Results are kept in the cache. bench, eval, fit, serve and load do the same on demand:
    --model BASE --type TYPE.

    The types are F32, F16, BF16, Q8_0, Q6_K, Q5_K_M, Q5_K_S, Q5_1, Q5_0, Q4_K_M, Q4_K_S, Q4_1,
    Q4_0, IQ4_NL, IQ4_XS, MXFP4_MOE, Q3_K_L, Q3_K_M, Q3_K_S, IQ3_M, IQ3_S, IQ3_XS, IQ3_XXS, Q2_K,
    Q2_K_S, Q2_0, TQ2_0, IQ2_M, IQ2_S, IQ2_XS, IQ2_XXS, TQ1_0, IQ1_M, IQ1_S, Q1_0.

    Example: armload model.quantize llama-3.2-1b-f16.gguf --type Q4_K_M,Q2_K
    """
    from armload.boards.board import THIS_MACHINE, load_board
    from armload.cli import terminal
    from armload.evaluation.quantising import quantise_and_compare
    from armload.report.model_summary import quantised_view
    from armload.report.result import as_result

    request = options.part(Request).model_copy(
        update={"board": options.on or THIS_MACHINE, "on": ""}
    )
    for name in (request.board, options.board):
        if name:
            load_board(name)  # a wrong name is reported before minutes pass
    folder = _folder(options.output) if options.output else None
    found = quantise_and_compare(
        request,
        options.base,
        options.type,
        terminal.progress(),
        calibration=options.calibration.expanduser() if options.calibration else None,
        allow_requantize=options.allow_requantize,
        output=folder,
        board=options.board,
        kld=options.kld,
    )
    return as_result(found, quantised_view(found))


def _folder(text: str) -> Path:
    path = Path(text).expanduser()
    if not path.is_dir():
        raise UsageError(
            f"--output {path}: this folder does not exist.", "Create it first, or correct the name."
        )
    return path
