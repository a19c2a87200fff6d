"""From a checkpoint to a model that a board can run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from armload.build.source import pinned_source
from armload.conversion.checkpoints.checking import ConversionCheck
from armload.conversion.checkpoints.checkpoint import Checkpoint, read_outline
from armload.conversion.checkpoints.environment import pinned_packages
from armload.conversion.checkpoints.forms import (
    Form,
    check_known_to_gguf,
    check_known_to_mnn,
    check_vocabulary,
    gguf_architectures,
    memory_bytes,
    result_bytes,
)
from armload.conversion.checkpoints.gguf import gguf_converter, to_gguf
from armload.conversion.checkpoints.installing import environment
from armload.conversion.checkpoints.mnn import mnn_converter, to_mnn
from armload.conversion.checkpoints.proposal import Proposal
from armload.conversion.checkpoints.staging import staged
from armload.core.errors import LocalMemoryError
from armload.core.files import require_room
from armload.core.progress import Progress
from armload.core.values import Value, format_bytes

_MOST_OF_MEMORY = 0.95


class Converted(Value):
    """A checkpoint that became a model.

    Attributes:
        path: the GGUF file, or the MNN model's folder.
        to: the form.
        type: of its weights.
        size_bytes: of the file, or of all files in the folder.
        name: the checkpoint's.
        architecture: the checkpoint's.
        parameters: the number of the checkpoint's weights.
        converter: what converted it, with its version.
        check: what was found to agree with the checkpoint.
    """

    path: Path
    to: Form
    type: str
    size_bytes: int
    name: str
    architecture: str
    parameters: int
    converter: str
    check: ConversionCheck


def check_convertible(folder: Path, form: Form, progress: Progress) -> None:
    """Refuse a checkpoint whose small files tell that it cannot be converted.

    Raises:
        UsageError: its architecture is unknown to the converter.
        DataError: its vocabulary cannot be read for it, or a file is malformed.
        DiskError: a file cannot be read.
        BuildError: llama.cpp's source, whose converter is asked, cannot be fetched.
    """
    outline = read_outline(folder)
    if form == "gguf":
        check_known_to_gguf(outline, gguf_architectures(pinned_source().provide(progress)))
        check_vocabulary(folder, outline, pinned_packages().pieces_alone)
    else:
        check_known_to_mnn(outline, pinned_packages().mnn_types)


def convert(
    checkpoint: Checkpoint,
    path: Path,
    *,
    form: Form,
    type_name: str,
    agree: Callable[[Proposal], bool],
    progress: Progress,
) -> Converted:
    """Convert a checkpoint to a file or a folder, whole or not at all.

    Args:
        checkpoint: whose architecture the converter knows.
        path: where the model goes; nothing is there, or an empty folder.
        form: what it becomes.
        type_name: of its weights; one of the form's.
        agree: is asked before the converters are installed.
        progress: shows how far the conversion is.

    Raises:
        UsageError: the converters are not installed, and ``agree`` did not say so.
        DiskError: there is not enough space.
        DataError: the converter refused the checkpoint, or made another model of it.
        LocalMemoryError: there is not enough memory.
        MissingToolError, ConnectError: as for ``environment``.
    """
    needed = result_bytes(form, type_name, checkpoint)
    require_room(
        *(path.parent, needed, f"{path}: the model takes about {format_bytes(needed)}"),
        "Free disk space, give --output on another disk, or choose a smaller --type.",
    )
    _check_memory(checkpoint, form)
    packages = pinned_packages()
    with environment(packages, agree, progress) as held, staged(checkpoint) as stage:
        to_form = to_gguf if form == "gguf" else to_mnn
        check = to_form(checkpoint, stage, path, type_name, held, progress)
    files = [path] if path.is_file() else path.iterdir()
    return Converted(
        path=path,
        to=form,
        type=type_name,
        size_bytes=sum(each.stat().st_size for each in files),
        name=checkpoint.name,
        architecture=checkpoint.architecture,
        parameters=checkpoint.parameters,
        converter=gguf_converter() if form == "gguf" else mnn_converter(packages),
        check=check,
    )


def _check_memory(checkpoint: Checkpoint, form: Form) -> None:
    import psutil

    needed = memory_bytes(form, checkpoint)
    available = psutil.virtual_memory().available
    if needed > available * _MOST_OF_MEMORY:
        raise LocalMemoryError(
            f"Converting {checkpoint.name} takes about {format_bytes(needed)} of memory, but "
            f"{format_bytes(available)} are available on this machine.",
            "Close other programs, or convert on a machine with more memory.",
        )
