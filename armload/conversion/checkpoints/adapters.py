"""A LoRA adapter as PEFT saves it, converted for llama.cpp and compared with its base model."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from armload.build.source import pinned_source
from armload.conversion.checkpoints.checking import check_gguf
from armload.conversion.checkpoints.checkpoint import ADAPTER_CONFIG, Checkpoint, read_object
from armload.conversion.checkpoints.converting import Converted, write_gguf
from armload.conversion.checkpoints.environment import pinned_packages
from armload.conversion.checkpoints.forms import result_bytes
from armload.conversion.checkpoints.installing import environment
from armload.conversion.checkpoints.program import run_converter
from armload.conversion.checkpoints.proposal import Proposal
from armload.conversion.checkpoints.soundness import check_weights
from armload.conversion.checkpoints.staging import staged
from armload.core.errors import DataError, UsageError
from armload.core.files import require_room, written_whole
from armload.core.progress import Progress
from armload.core.values import Value, format_bytes
from armload.models.adapter import AdapterChoice
from armload.models.adapter_file import with_adapters
from armload.models.gguf import read_outline
from armload.models.header import read_header

WEIGHTS = "adapter_model.safetensors"
_SCRIPT = "convert_lora_to_gguf.py"
_LARGEST_EXACT_BYTES = 4 << 30
"""Of a base model in 32-bit floats, with which the comparison is the most exact."""

_UNSUPPORTED = {
    "use_dora": "DoRA",
    "use_rslora": "rank-stabilised scaling (rsLoRA)",
    "lora_bias": "biases",
    "alpha_pattern": "a scale of its own for some matrices",
    "modules_to_save": "whole matrices beside the low-rank ones",
    "trainable_token_indices": "rows of the embedding",
    "target_parameters": "parameters that are no matrices of a layer",
}
"""Settings that llama.cpp's adapters have no place for, and that its converter ignores."""


class PeftAdapter(Value):
    """A folder with an adapter.

    Attributes:
        name: of the folder.
        base: what its configuration calls the model that it was trained for; empty for nothing.
    """

    folder: Path
    name: str
    base: str


def is_adapter(folder: Path) -> bool:
    """Tell whether a folder holds an adapter, and no checkpoint."""
    return (folder / ADAPTER_CONFIG).is_file()


def read_adapter(folder: Path) -> PeftAdapter:
    """Read an adapter's configuration.

    Raises:
        UsageError, DataError: llama.cpp cannot have it, or its weights are missing.
    """
    path = folder / ADAPTER_CONFIG
    config: dict[str, Any] = read_object(path)
    kind = config.get("peft_type")
    if kind != "LORA":
        raise UsageError(
            f"{path}: peft_type is {str(kind)[:40]!a}, and llama.cpp supports LORA alone.",
            "Merge the adapter into its model (merge_and_unload of PEFT), and convert that.",
        )
    used = [what for key, what in _UNSUPPORTED.items() if config.get(key)]
    if config.get("bias", "none") != "none":
        used.append("biases")
    if used:
        raise UsageError(
            f"{path}: this adapter has {' and '.join(used)}, for which llama.cpp's adapters have "
            "no place.",
            "Merge the adapter into its model (merge_and_unload of PEFT), and convert that.",
        )
    if not (folder / WEIGHTS).is_file():
        raise DataError(
            f"{folder}: {WEIGHTS} is missing.",
            "Save the adapter again with save_pretrained(…, safe_serialization=True): pickled "
            "weights are not read.",
        )
    base = config.get("base_model_name_or_path")
    name = folder.absolute().name
    return PeftAdapter(folder=folder, name=name, base=base if isinstance(base, str) else "")


def convert_adapter(
    adapter: PeftAdapter,
    base: Checkpoint,
    path: Path,
    *,
    type_name: str,
    unchecked: bool,
    agree: Callable[[Proposal], bool],
    progress: Progress,
) -> Converted:
    """Convert an adapter to a GGUF file, whole or not at all.

    Its base model is converted, too, for the comparison alone: what both compute together must be
    what the checkpoint computes with the adapter merged into its weights.

    Args:
        base: the checkpoint that it was trained for.
        path: of the file.
        type_name: of its weights.
        unchecked, agree: as for ``convert``.
    """
    exact = result_bytes("gguf", "F32", base) <= _LARGEST_EXACT_BYTES
    base_type = "F32" if exact else "F16" if base.dtype == "F16" else "BF16"
    needed = result_bytes("gguf", base_type, base)
    require_room(
        Path(tempfile.gettempdir()),
        needed,
        f"The comparison of {adapter.name} with its base model takes {format_bytes(needed)}",
        "Free disk space, or set TMPDIR to a folder on another disk.",
    )
    check_weights(base, progress)
    with (
        environment(pinned_packages(), agree, progress) as held,
        staged(base) as stage,
        tempfile.TemporaryDirectory(prefix="armload-") as scratch,
    ):
        shown = stage.parent / "adapter"
        shown.mkdir()
        for name in (ADAPTER_CONFIG, WEIGHTS):
            (shown / name).symlink_to((adapter.folder / name).resolve())
        model_file = Path(scratch) / "base.gguf"
        write_gguf(base, stage, model_file, base_type, held, progress)
        script = pinned_source().provide(progress) / _SCRIPT
        with written_whole(path) as beside:
            words = [str(script), "--base", str(stage), "--outfile", str(beside.absolute())]
            with progress.step(f"Converting {adapter.name} to {type_name}"):
                run_converter(
                    [*words, "--outtype", type_name.lower(), str(shown)],
                    *(base, held),
                    folder=stage.parent,
                    watch=lambda _: None,
                )
            model, header = read_outline(model_file)
            choice = AdapterChoice(file=str(beside.absolute()))
            try:
                fitted = with_adapters(model, (choice,), progress, header=header)
                check = check_gguf(
                    *(base, model_file, header, _coarser(base_type, type_name), held, progress),
                    unchecked=unchecked,
                    adapter=(shown, beside.absolute()),
                )
            except DataError as error:
                where = f"{adapter.folder}, with {base.name}: "
                raise DataError(where + error.message, error.remedy) from error
            size_bytes = read_header(beside).file_bytes
    return Converted(
        path=path,
        to="gguf",
        type=type_name,
        size_bytes=size_bytes,
        name=adapter.name,
        architecture=base.architecture,
        parameters=sum(each.parameters for each in fitted.adapters),
        converter=f"{_SCRIPT} of {pinned_source().label}",
        check=check,
    )


def _coarser(*types: str) -> str:
    return max(types, key=("F32", "F16", "BF16", "Q8_0").index)
