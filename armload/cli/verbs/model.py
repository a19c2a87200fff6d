"""``model.*``: what a model consists of, models of random weights, and converted ones."""

from __future__ import annotations

from invoke.collection import Collection
from invoke.context import Context
from invoke.tasks import task

from armload.cli.flags import JSON_HELP
from armload.cli.verb import Verb
from armload.cli.verbs.convert import convert
from armload.cli.verbs.quantize import quantize


@task(
    klass=Verb,
    help={"file": "a model, as for --model of bench"} | JSON_HELP,
)
def inspect(c: Context, file: str, json: bool = False) -> None:
    """Show a model's tensors, the bytes read per token, and the size of its KV cache.

    Example: armload model.inspect llama-3.2-1b-q4_0.gguf
    """
    del c
    from armload.cli import terminal
    from armload.cli.document import show_document
    from armload.models.find import resolve
    from armload.models.gguf import read_anatomy
    from armload.models.header import check_whole
    from armload.report.models import anatomy_table

    progress = terminal.progress()
    anatomy = read_anatomy(resolve(file, progress), progress)
    if json:
        show_document(anatomy)
    else:
        terminal.show(anatomy_table(anatomy))
    check_whole(anatomy.path, anatomy.size_bytes, anatomy.whole_bytes)


@task(
    klass=Verb,
    help={
        "like": "shape: the name of a file in shapes/, such as llama-3.1-8b",
        "type": "file type, such as Q2_K or Q4_K_M",
        "output": "file to write (SHAPE-TYPE-random.gguf in the current folder)",
        "seed": "seed of the weights",
    }
    | JSON_HELP,
)
def synth(
    c: Context,
    like: str = "",
    type: str = "Q4_0",  # noqa: A002 - the name of the option
    output: str = "",
    seed: str = "1",
    json: bool = False,
) -> None:
    """Generate a model with random weights and the tensors of a published one.

    Example: armload model.synth --like llama-3.1-8b --type Q2_K
    """
    del c
    from armload.cli import terminal
    from armload.cli.document import show_document
    from armload.cli.numbers import whole_number
    from armload.cli.output import output_file
    from armload.models.mix import check_file_type
    from armload.models.shape import load_shape
    from armload.models.synth import synthesise_like
    from armload.report.layout import whole
    from armload.serving.arrivals import LARGEST_SEED

    number = whole_number("seed", seed, most=LARGEST_SEED) or 0
    shape, file_type = load_shape(_given(like)), check_file_type(type)
    path = output_file(output or f"{like}-{file_type}-random.gguf")
    progress = terminal.progress()
    synthesise_like(shape, path, file_type=file_type, seed=number, progress=progress)
    if json:
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
