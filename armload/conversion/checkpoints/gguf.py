"""To GGUF, with the converter of the pinned llama.cpp."""

from __future__ import annotations

import re
from pathlib import Path

from armload.build.source import pinned_source
from armload.conversion.checkpoints.checking import ConversionCheck, check_gguf
from armload.conversion.checkpoints.checkpoint import Checkpoint
from armload.conversion.checkpoints.environment import Environment
from armload.conversion.checkpoints.forms import result_bytes
from armload.conversion.checkpoints.program import run_converter
from armload.core.errors import DataError
from armload.core.files import written_whole
from armload.core.progress import Progress
from armload.core.workspace import data_path
from armload.models.gguf import read_outline

_SCRIPT = "convert_hf_to_gguf.py"
_WRITTEN = re.compile(r"Writing: +(\d+)%")


def gguf_converter() -> str:
    """Return the converter's name with its version."""
    return f"{_SCRIPT} of {pinned_source().label}"


def to_gguf(
    checkpoint: Checkpoint,
    stage: Path,
    path: Path,
    type_name: str,
    held: Environment,
    progress: Progress,
) -> ConversionCheck:
    """Write a checkpoint's GGUF file, whole and as the checkpoint is, or not at all.

    Args:
        checkpoint: what is converted.
        stage: the folder that shows it to the converter.
        path: of the file.
        type_name: of its weights.
        held: the converters' environment.
        progress: shows how many bytes are written.

    Raises:
        DataError: the converter refused the checkpoint, or made another model of it.
        DiskError, ArmloadError: as for ``run_converter``.
    """
    total = result_bytes("gguf", type_name, checkpoint)
    label = f"Converting {checkpoint.name} to {type_name}"
    script = pinned_source().provide(progress) / _SCRIPT
    wrapper = data_path("toolchains", "converters", "convert_gguf.py")
    with written_whole(path) as beside:
        words = [str(wrapper), str(script), str(stage), "--outfile", str(beside.absolute())]
        words += ["--outtype", type_name.lower()]
        with progress.step(label, total=total, unit="B") as step:

            def watch(line: str) -> None:
                written = _WRITTEN.match(line)
                if written:
                    step.update(total * int(written[1]) / 100)

            run_converter(words, checkpoint, held, folder=stage.parent, watch=watch)
        try:
            _, header = read_outline(beside)
        except DataError as error:
            raise DataError(error.message.replace(str(beside), str(path)), error.remedy) from error
        return check_gguf(checkpoint, beside, header, type_name, held, progress)
