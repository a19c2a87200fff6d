"""``model.*``: what a model consists of, models of random weights, and converted ones."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from armload.cli.load_options import RandomSeed
from armload.cli.options import OutputOptions
from armload.cli.verb import verb
from armload.core.options import Option

if TYPE_CHECKING:
    from armload.conversion.checkpoints.checkpoint import Checkpoint
    from armload.conversion.checkpoints.converting import Converted
    from armload.conversion.checkpoints.forms import Form
    from armload.conversion.checkpoints.proposal import Proposal
    from armload.core.progress import Progress
    from armload.report.result import Result


class ConvertOptions(OutputOptions):
    """A checkpoint, and what is made of it."""

    checkpoint: Annotated[
        str,
        Option(
            "a folder with config.json and *.safetensors, hf:ORG/REPO (ms: for ModelScope), or "
            "the folder of a LoRA adapter that PEFT has saved",
            is_argument=True,
            takes="folder",
        ),
    ]
    to: Annotated[str, Option("gguf, or mnn", "FORMAT", harmless="anywhere")] = "gguf"
    type: Annotated[
        str,
        Option(
            "type of weights: F32, F16, BF16, Q8_0; for mnn 4-bit or 8-bit",
            usual="16 bits; 4-bit",
            harmless="anywhere",
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
    base: Annotated[
        str,
        Option(
            "of an adapter: the checkpoint that it was trained for, as for the model itself",
            "CHECKPOINT",
            "as its adapter_config.json says",
            takes="folder",
        ),
    ] = ""
    unchecked: Annotated[
        bool, Option("keep a GGUF file that cannot be compared with its checkpoint")
    ] = False
    yes: Annotated[bool, Option("install the converters without asking")] = False


@verb(ConvertOptions, keeps=True)
def convert(options: ConvertOptions) -> Result:
    """Convert a Hugging Face checkpoint to GGUF, or to MNN.

    Asks before it installs the converters. An adapter becomes a file for --lora of bench, and is
    checked with its base model. Example: armload model.convert Llama-3.2-1B
    """
    from armload.cli import terminal
    from armload.cli.options import output_file, output_folder
    from armload.conversion.checkpoints.adapters import is_adapter
    from armload.conversion.checkpoints.converting import convert as convert_checkpoint
    from armload.conversion.checkpoints.forms import check_form, check_type

    form = check_form(options.to)
    check_type(form, options.type, "")
    progress = terminal.progress()
    if is_adapter(Path(options.checkpoint).expanduser()):
        return _converted_adapter(options, form, progress)
    options.refuse(("base",), "a whole checkpoint", "Remove it.")
    found = _found(options.checkpoint, form, progress, unchecked=options.unchecked)
    type_name = check_type(form, options.type, found.dtype)
    is_file = form == "gguf"
    usual = f"{found.name}-{type_name}.gguf" if is_file else f"{found.name}-mnn-{type_name}"
    done = convert_checkpoint(
        found,
        output_file(options.output or usual) if is_file else output_folder(options.output or usual),
        form=form,
        type_name=type_name,
        unchecked=options.unchecked,
        agree=lambda proposal: _is_meant(proposal, yes=options.yes),
        progress=progress,
    )
    return _checked(done, progress)


def _converted_adapter(options: ConvertOptions, form: Form, progress: Progress) -> Result:
    from armload.cli.options import output_file
    from armload.conversion.checkpoints.adapters import convert_adapter, read_adapter
    from armload.conversion.checkpoints.forms import check_type
    from armload.core.errors import UsageError
    from armload.models.hub_reference import is_reference

    adapter = read_adapter(Path(options.checkpoint).expanduser())
    if form != "gguf":
        raise UsageError(
            f"--to {form}: an adapter is converted to gguf alone.", "Remove --to, or use --to gguf."
        )
    # It is small beside its model.
    type_name = check_type(form, options.type, "") if options.type else "F32"
    base = options.base or adapter.base
    if not base:
        raise UsageError(
            f"{adapter.folder}: adapter_config.json does not say for which model this adapter is.",
            "Give the checkpoint of its model: --base FOLDER, or --base hf:ORG/REPO.",
        )
    if not is_reference(base) and not Path(base).expanduser().is_dir():
        if options.base or base.count("/") != 1:
            raise UsageError(
                f"{base}: there is no such folder; the adapter is checked with its base model.",
                "Give the checkpoint of its model: --base FOLDER, or --base hf:ORG/REPO.",
            )
        base = f"hf:{base}"
    found = _found(base, form, progress, unchecked=options.unchecked)
    done = convert_adapter(
        *(adapter, found, output_file(options.output or f"{adapter.name}-{type_name}.gguf")),
        type_name=type_name,
        unchecked=options.unchecked,
        agree=lambda proposal: _is_meant(proposal, yes=options.yes),
        progress=progress,
    )
    return _checked(done, progress)


def _checked(done: Converted, progress: Progress) -> Result:
    """Say what was compared, and show the files that were made."""
    from rich.console import Group

    from armload.report.layout import whole
    from armload.report.result import as_result

    for line in done.check.lines:
        progress.say(line)
    paths = (done.path, done.projector) if done.projector else (done.path,)
    return as_result(done, Group(*(whole(str(each)) for each in paths)))


def _found(reference: str, form: Form, progress: Progress, *, unchecked: bool) -> Checkpoint:
    """Return the checkpoint that a person named, which the form's converter knows."""
    from armload.conversion.checkpoints.checkpoint import (
        NEEDED_PATTERNS,
        read_checkpoint,
    )
    from armload.conversion.checkpoints.converting import check_convertible
    from armload.models.hub import fetch_checkpoint
    from armload.models.hub_reference import is_reference

    def check(folder: Path) -> None:
        check_convertible(folder, form, progress, unchecked=unchecked)

    if is_reference(reference):
        folder = fetch_checkpoint(reference, NEEDED_PATTERNS, check, progress)
        return read_checkpoint(folder, reference.partition("@")[0].rpartition("/")[2])
    folder = Path(reference).expanduser()
    check(folder)
    return read_checkpoint(folder)


def _is_meant(proposal: Proposal, *, yes: bool) -> bool:
    """Say what the converters take, and ask."""
    from armload.cli import terminal

    for line in proposal.lines:
        terminal.progress().say(line)
    return yes or terminal.confirm("Download and install them?")


class InspectOptions(OutputOptions):
    """A model."""

    file: Annotated[
        str, Option("a model, as for --model of bench", is_argument=True, takes="model")
    ]


@verb(InspectOptions)
def inspect(options: InspectOptions) -> Generator[Result, None, None]:
    """Show a model's tensors, the bytes read per token, and the size of its KV cache.

    Of a projector (mmproj-*.gguf), shows its encoders and the tokens that images become.
    Example: armload model.inspect llama-3.2-1b-q4_0.gguf
    """
    from armload.cli import terminal
    from armload.models.find import resolve
    from armload.models.gguf import read_model_summary
    from armload.models.header import check_whole
    from armload.models.projector import is_projector_file, read_projector
    from armload.report.model_summary import projector_table, summary_table
    from armload.report.result import as_result

    progress = terminal.progress()
    path = resolve(options.file, progress)
    if is_projector_file(path):
        projector = read_projector(path, progress)
        yield as_result(projector, projector_table(projector))
        check_whole(path, projector.size_bytes - projector.missing_bytes, projector.size_bytes)
        return
    summary = read_model_summary(path, progress)
    yield as_result(summary, summary_table(summary))
    check_whole(summary.path, summary.size_bytes, summary.whole_bytes)


class SynthOptions(OutputOptions):
    """A shape, and what is made of it."""

    like: Annotated[
        str, Option("shape: the name of a file in shapes/, such as llama-3.1-8b", "SHAPE")
    ] = ""
    type: Annotated[str, Option("file type, such as Q2_K or Q4_K_M", harmless="anywhere")] = "Q4_0"
    output: Annotated[
        str, Option("file to write", "FILE", "SHAPE-TYPE-random.gguf in the current folder")
    ] = ""
    seed: Annotated[RandomSeed, Option("seed of the weights", "N")] = 1


@verb(SynthOptions)
def synth(options: SynthOptions) -> Result:
    """Generate a model with random weights and the tensors of a published one.

    Example: armload model.synth --like llama-3.1-8b --type Q2_K
    """
    from armload.cli import terminal
    from armload.cli.options import output_file
    from armload.models.gguf import read_model_summary
    from armload.models.quant_mix import check_file_type
    from armload.models.shape import load_shape
    from armload.models.synth import synthesise_like
    from armload.report.layout import whole
    from armload.report.result import as_result

    shape, file_type = load_shape(_given(options.like)), check_file_type(options.type)
    path = output_file(options.output or f"{options.like}-{file_type}-random.gguf")
    progress = terminal.progress()
    synthesise_like(shape, path, file_type=file_type, seed=options.seed, progress=progress)
    summary = read_model_summary(path, progress) if options.as_json else None  # reads all of it
    return as_result(summary, whole(str(path)))


def _given(like: str) -> str:
    from armload.core.errors import UsageError
    from armload.core.workspace import listing_of
    from armload.models.shape import SHAPES

    if not like:
        raise UsageError(
            "--like is required: the name of a shape.",
            f"Example: --like llama-3.1-8b. To list all shapes: {listing_of(SHAPES)}",
        )
    return like
