"""``model.convert``: from a Hugging Face checkpoint to a model that a board can run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from armload.cli.options import Output
from armload.cli.verb import verb
from armload.core.options import Option

if TYPE_CHECKING:
    from armload.conversion.checkpoints.checkpoint import Checkpoint
    from armload.conversion.checkpoints.forms import Form
    from armload.conversion.checkpoints.proposal import Proposal
    from armload.core.progress import Progress


class ConvertOptions(Output):
    """A checkpoint, and what is made of it."""

    checkpoint: Annotated[
        str,
        Option("a folder with config.json and *.safetensors, or hf:ORG/REPO", is_argument=True),
    ]
    to: Annotated[str, Option("gguf, or mnn", "FORMAT")] = "gguf"
    type: Annotated[
        str,
        Option(
            "type of weights: F32, F16, BF16, Q8_0; for mnn 4-bit or 8-bit",
            usual="16 bits; 4-bit",
        ),
    ] = ""
    output: Annotated[
        str,
        Option(
            "file or folder to write",
            "PATH",
            "NAME-TYPE.gguf or NAME-mnn-TYPE in the current folder",
        ),
    ] = ""
    yes: Annotated[bool, Option("install the converters without asking")] = False


@verb(ConvertOptions)
def convert(options: ConvertOptions) -> None:
    """Convert a Hugging Face checkpoint to GGUF, or to MNN.

    The first time, it asks to install the converters. Example: armload model.convert Llama-3.2-1B
    """
    from armload.cli import terminal
    from armload.cli.document import show_document
    from armload.cli.output import output_file, output_folder
    from armload.conversion.checkpoints.converting import convert as convert_checkpoint
    from armload.conversion.checkpoints.forms import check_form, check_type
    from armload.report.layout import whole

    form = check_form(options.to)
    check_type(form, options.type, "")
    progress = terminal.progress()
    found = _found(options.checkpoint, form, progress)
    type_name = check_type(form, options.type, found.dtype)
    is_file = form == "gguf"
    usual = f"{found.name}-{type_name}.gguf" if is_file else f"{found.name}-mnn-{type_name}"
    done = convert_checkpoint(
        found,
        output_file(options.output or usual) if is_file else output_folder(options.output or usual),
        form=form,
        type_name=type_name,
        agree=lambda proposal: _is_meant(proposal, yes=options.yes),
        progress=progress,
    )
    if options.as_json:
        show_document(done)
    else:
        terminal.show(whole(str(done.path)))


def _found(reference: str, form: Form, progress: Progress) -> Checkpoint:
    """Return the checkpoint that a person named, which the form's converter knows."""
    from armload.conversion.checkpoints.checkpoint import (
        NEEDED_PATTERNS,
        read_checkpoint,
        read_outline,
    )
    from armload.conversion.checkpoints.converting import check_convertible
    from armload.models.hub import PREFIX
    from armload.models.hub_checkpoint import fetch_checkpoint

    def check(folder: Path) -> None:
        check_convertible(read_outline(folder), form, progress)

    if reference.startswith(PREFIX):
        folder = fetch_checkpoint(reference, NEEDED_PATTERNS, check, progress)
        return read_checkpoint(folder, reference.rpartition("/")[2])
    folder = Path(reference).expanduser()
    check(folder)
    return read_checkpoint(folder)


def _is_meant(proposal: Proposal, *, yes: bool) -> bool:
    """Say what the converters take, and ask."""
    from armload.cli import terminal

    for line in proposal.lines:
        terminal.progress().say(line)
    return yes or terminal.confirm("Download and install them?")
