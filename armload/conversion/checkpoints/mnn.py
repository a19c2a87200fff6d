"""To MNN, with llmexport."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from armload.conversion.checkpoints.checking import ConversionCheck
from armload.conversion.checkpoints.checkpoint import Checkpoint, read_object
from armload.conversion.checkpoints.environment import Environment, Packages
from armload.conversion.checkpoints.forms import MNN_BITS, result_bytes
from armload.conversion.checkpoints.program import run_converter
from armload.core.errors import DataError
from armload.core.progress import Progress
from armload.core.workspace import data_path

_CONFIG = "config.json"
_INTERMEDIATE = ("llm.mnn.json", "export_args.json")
_NEEDED = ("llm_model", "llm_weight", "tokenizer_file")
_QUANTISED = re.compile(r"Quant weights: +(\d+)%")
_STAGE = re.compile(r"(load pretrained model|export \w+ model|convert \w+ model|export tokenizer)")


def mnn_converter(packages: Packages) -> str:
    """Return the converter's name with its version."""
    return f"llmexport {packages.version_of('llmexport')}"


def to_mnn(
    checkpoint: Checkpoint,
    stage: Path,
    path: Path,
    type_name: str,
    held: Environment,
    progress: Progress,
) -> ConversionCheck:
    """Write a checkpoint's MNN folder, whole or not at all.

    The arguments are those of ``to_gguf``, except that ``path`` is a folder.

    Raises:
        DataError, DiskError, ArmloadError: as for ``run_converter``.
    """
    total = result_bytes("mnn", type_name, checkpoint)
    label = f"Converting {checkpoint.name} to MNN, {type_name}"
    with (
        _folder_whole(path) as beside,
        progress.step(label, total=total, unit="B") as step,
    ):

        def watch(line: str) -> None:
            quantised, stage_name = _QUANTISED.search(line), _STAGE.search(line)
            if quantised:
                step.update(total * int(quantised[1]) / 100, note="quantising the weights")
            elif stage_name:
                step.update(0, note=stage_name[1])

        # A relative path: llmexport takes whatever has "bge" or "gte" in it for another kind.
        words = [
            str(data_path("toolchains", "converters", "export_mnn.py")),
            stage.name,
            str(beside.absolute()),
        ]
        run_converter(
            [*words, str(MNN_BITS[type_name])],
            checkpoint,
            held,
            folder=stage.parent,
            watch=watch,
        )
        _finish(checkpoint, beside)
    return ConversionCheck(unchecked=("tokens and logits of an MNN model",))


def _finish(checkpoint: Checkpoint, folder: Path) -> None:
    """Check that the model is whole; let it answer as armload's other engines do."""
    path = folder / _CONFIG
    config = read_object(path) if path.is_file() else {}
    missing = [
        str(config.get(key) or key)
        for key in _NEEDED
        if key not in config or not (folder / str(config[key])).is_file()
    ]
    if missing:
        raise DataError(
            f"{checkpoint.folder}: llmexport ended without writing {', '.join(missing)}.",
            "Check that MNN supports this architecture.",
        )
    config["sampler_type"] = "greedy"
    path.write_text(json.dumps(config, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for name in _INTERMEDIATE:
        (folder / name).unlink(missing_ok=True)


@contextmanager
def _folder_whole(path: Path) -> Iterator[Path]:
    beside = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.absolute().parent))
    try:
        yield beside
        beside.chmod(0o755)
        beside.replace(path)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
