"""``fit``: which models fit on a board, and how fast they would be, before any is uploaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from armload.bench.options import MODEL
from armload.cli.options import FileTypes, OnBoards, OnGateways, OutputOptions
from armload.cli.verb import verb
from armload.core.options import Names, Option, Yields
from armload.engines.plan import Computation, Embedded, MediaPath, PromptTokens
from armload.models.image_tokens import USUAL_SIZE
from armload.runs.request import EngineSource, Waiting

if TYPE_CHECKING:
    from armload.bench.fitting import Fit
    from armload.bench.outlined import Media
    from armload.core.progress import Progress
    from armload.report.result import Result


_REACHING = ("board", "scheduler", "wait_s")


class FitOptions(OnBoards, OnGateways, Waiting, EngineSource, Computation, OutputOptions):
    """What is predicted."""

    heading = "Plan"
    yields: ClassVar[Yields] = {"hardware": _REACHING}

    hardware: Annotated[
        Names,
        Option(
            "instead of a board: hardware from the catalogue, such as raspberry-pi-5-8gb, or all; "
            "4x-raspberry-pi-5-8gb compares numbers of boards",
            "NAME",
            several="commas",
            takes="hardware",
            heading="Board",
            harmless="anywhere",
        ),
    ] = ()
    model: Annotated[
        Names, Option(MODEL, usual="the current models", several="files", harmless="in a plan")
    ] = ()
    type: Annotated[
        FileTypes,
        Option(
            "predict for the models quantised to these file types, such as Q4_K_M",
            "TYPE",
            "unchanged",
            "commas",
            harmless="anywhere",
        ),
    ] = ()
    mmproj: Annotated[
        MediaPath | None,
        Option(
            "projector for images and sounds, a file or hf:ORG/REPO/FILE.gguf; auto: the mmproj "
            "file beside the model, or in its repository; none: text alone",
            "FILE|auto|none",
            "auto where there is one",
            takes="model",
            harmless="in a plan",
        ),
    ] = None
    image_size: Annotated[
        str,
        Option("size of the image before the prompt", "WxH", str(USUAL_SIZE), harmless="anywhere"),
    ] = ""
    embed: Annotated[
        Embedded,
        Option(
            "texts of --prompt-tokens tokens to embed at a time, instead of generating",
            "N",
            "1 for encoders and rerankers",
            harmless="anywhere",
        ),
    ] = None
    prompt_tokens: Annotated[
        PromptTokens, Option("length of the prompt", "TOKENS", harmless="anywhere")
    ] = 128
    lists_all: Annotated[
        bool,
        Option(
            "without --model, list every current model and quantisation, also those that a larger "
            "model is as fast as",
            name="all",
            heading="Output",
            harmless="anywhere",
        ),
    ] = False


def _media(options: FitOptions) -> Media:
    """Return which image is predicted; one projector is of one model."""
    from armload.bench.outlined import Media
    from armload.core.errors import UsageError
    from armload.models.find_projector import AUTO, NONE
    from armload.models.image_tokens import read_size

    named = (options.mmproj or "").casefold()
    if options.image_size and named == NONE:
        raise UsageError(
            f"--image-size {options.image_size}: it has no effect with --mmproj {options.mmproj}.",
            "Remove one.",
        )
    if named not in ("", AUTO, NONE) and len(options.model) != 1:
        raise UsageError(
            "--mmproj names the projector of one model.",
            "Name that model with --model, alone.",
        )
    return Media(
        projector=options.mmproj or "",
        size=read_size(options.image_size) if options.image_size else None,
    )


@verb(FitOptions, keeps=True)
def fit(options: FitOptions) -> Result:
    """Predict whether models fit on a board, and how fast they will be.

    No model is uploaded: its operations are timed on the board, which takes at most 25 s for each
    model. For models on the hub, only the header is downloaded. Without --model, current models are
    listed by speed, and nothing is timed. If the board does not answer, the facts in its file are
    used. For models that see or hear, the forecast includes an image or a sound before the prompt.
    Several boards are compared with each other, as is hardware from the catalogue
    (--hardware), which needs no board. With a number before its name, one board with llama.cpp is
    compared with several that compute each layer together (--engine dllama of bench).
    Example: armload fit --board dayu200 --model like:llama-3.1-8b:Q2_K,small.gguf
    Example: armload fit --hardware all --model like:llama-3.1-8b:Q4_K_M
    Example: armload fit --hardware 4x-raspberry-pi-5-8gb --model like:llama-3.1-8b:Q4_0
    """
    from armload.bench.fitting import check_compares, compared, fit_hardware
    from armload.bench.fitting import fit as predict_fit
    from armload.boards.naming import boards_called
    from armload.cli import terminal
    from armload.core.errors import CombinedError
    from armload.engines.contradictions import check_consistent
    from armload.engines.plan import Plan
    from armload.fleet.reach import boards_reached
    from armload.fleet.threads import on_each
    from armload.report.fitted import boards_view, listing_view
    from armload.report.result import as_result
    from armload.runs.request import Request

    check_consistent(options.part(Plan))
    media = _media(options)
    if options.model:
        options = options.refuse(("lists_all",), "--model, which names the models", "Remove one.")
    if options.hardware:
        options = options.refuse(_REACHING, "--hardware", "Remove one.")
        hardware = fit_hardware(
            options.part(Request).model_copy(update={"board": options.board[0]}),
            options.hardware,
            options.model,
            options.part(Plan),
            terminal.progress(),
            file_types=options.type,
            media=media,
        )
        view = boards_view(hardware, "hardware") if options.model else None
        return as_result(
            hardware, view or listing_view(hardware.boards[0], lists_all=options.lists_all)
        )
    boards, progress = boards_called(options.board), terminal.progress()
    check_compares(len(boards), options.model)
    with boards_reached(options.scheduler, boards, progress) as reach:

        def predicted(board: str, own: Progress) -> Fit:
            theirs = options.part(Request).model_copy(update={"board": board})
            return predict_fit(
                *(theirs, options.model, options.part(Plan), own),
                file_types=options.type,
                reach=reach,
                media=media,
            )

        outcomes = on_each(boards, predicted, progress)
    fits = [one.result for one in outcomes if one.result is not None]
    failed = CombinedError.of_boards({one.board: one.error for one in outcomes})
    if not fits and failed is not None:
        raise failed
    if not options.model:
        view = listing_view(fits[0], lists_all=options.lists_all)
        return as_result(fits[0], view, error=failed)
    several = compared(fits, options.model)
    return as_result(fits[0] if len(boards) == 1 else several, boards_view(several), error=failed)
