"""``model.*``: what a model consists of, models of random weights, and converted ones."""

from __future__ import annotations

from typing import Annotated

from invoke.collection import Collection

from armload.cli.options import Output
from armload.cli.verb import verb
from armload.cli.verbs.convert import convert
from armload.cli.verbs.load import RandomSeed
from armload.cli.verbs.quantize import quantize
from armload.core.options import Option


class InspectOptions(Output):
    """A model."""

    file: Annotated[str, Option("a model, as for --model of bench", is_argument=True)]


@verb(InspectOptions)
def inspect(options: InspectOptions) -> None:
    """Show a model's tensors, the bytes read per token, and the size of its KV cache.

    Example: armload model.inspect llama-3.2-1b-q4_0.gguf
    """
    from armload.cli import terminal
    from armload.cli.document import show_document
    from armload.models.find import resolve
    from armload.models.gguf import read_anatomy
    from armload.models.header import check_whole
    from armload.report.models import anatomy_table

    progress = terminal.progress()
    anatomy = read_anatomy(resolve(options.file, progress), progress)
    if options.as_json:
        show_document(anatomy)
    else:
        terminal.show(anatomy_table(anatomy))
    check_whole(anatomy.path, anatomy.size_bytes, anatomy.whole_bytes)


class SynthOptions(Output):
    """A shape, and what is made of it."""

    like: Annotated[
        str, Option("shape: the name of a file in shapes/, such as llama-3.1-8b", "SHAPE")
    ] = ""
    type: Annotated[str, Option("file type, such as Q2_K or Q4_K_M")] = "Q4_0"
    output: Annotated[
        str, Option("file to write", "FILE", "SHAPE-TYPE-random.gguf in the current folder")
    ] = ""
    seed: Annotated[RandomSeed, Option("seed of the weights", "N")] = 1


@verb(SynthOptions)
def synth(options: SynthOptions) -> None:
    """Generate a model with random weights and the tensors of a published one.

    Example: armload model.synth --like llama-3.1-8b --type Q2_K
    """
    from armload.cli import terminal
    from armload.cli.document import show_document
    from armload.cli.output import output_file
    from armload.models.mix import check_file_type
    from armload.models.shape import load_shape
    from armload.models.synth import synthesise_like
    from armload.report.layout import whole

    shape, file_type = load_shape(_given(options.like)), check_file_type(options.type)
    path = output_file(options.output or f"{options.like}-{file_type}-random.gguf")
    progress = terminal.progress()
    synthesise_like(shape, path, file_type=file_type, seed=options.seed, progress=progress)
    if options.as_json:
        from armload.models.gguf import read_anatomy

        show_document(read_anatomy(path, progress))
    else:
        terminal.show(whole(str(path)))


def _given(like: str) -> str:
    from armload.core.errors import UsageError
    from armload.core.workspace import data_names
    from armload.models.shape import SHAPES

    if not like:
        raise UsageError(
            "--like is missing: which shape?", f"Available: {', '.join(data_names(SHAPES))}."
        )
    return like


collection = Collection("model", inspect, synth, quantize, convert)
