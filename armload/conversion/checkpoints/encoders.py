"""How an embedding is made of a checkpoint's tokens, and whether its file does the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from armload.conversion.checkpoints.checkpoint import Checkpoint, CheckpointOutline, read_object
from armload.conversion.checkpoints.environment import Environment
from armload.conversion.checkpoints.program import Findings, compared_by
from armload.conversion.checkpoints.projectors import ComparedRows
from armload.core.bounds import read_bounded
from armload.core.errors import DataError
from armload.core.progress import Progress
from armload.core.values import load_json
from armload.engines.embedding import EMBEDDING_PROGRAM

MODULES = "modules.json"
_MOST_BYTES = 1 << 20
_KNOWN = {"Transformer", "Pooling", "Dense", "Normalize"}
_DENSE = ("2_Dense", "3_Dense")
_WITH_DENSE = "Gemma3TextModel"
"""The only architecture whose dense layers the converter takes, and the folders that it knows."""

_NO_ACTIVATION = "Identity"


class EmbeddingFindings(Findings):
    """How far embeddings of texts differ; none if they were not compared."""

    compares = "embeds"

    rows: ComparedRows | None = None


def has_dense(folder: Path) -> bool:
    """Tell whether dense layers follow the pooling of a checkpoint's tokens."""
    return any(kind == "Dense" for kind, _ in _modules(folder))


def check_modules(folder: Path, outline: CheckpointOutline) -> None:
    """Refuse modules of sentence-transformers that a file would lack.

    Raises:
        DataError: llama.cpp has no place for one; says for which.
    """
    modules = _modules(folder)
    path = folder / MODULES
    for kind, place in modules:
        if kind not in _KNOWN:
            raise _left_out(path, f"the module {kind} in {place or 'the folder itself'}")
    dense = [place for kind, place in modules if kind == "Dense"]
    if not dense:
        return
    if outline.architecture != _WITH_DENSE or dense != list(_DENSE):
        raise _left_out(path, f"the dense layers {', '.join(dense)} of {outline.architecture}")
    for place in dense:
        config = _object(folder / place / "config.json")
        if not (folder / place / "model.safetensors").is_file():
            raise DataError(
                f"{folder / place}: the weights of this dense layer are missing "
                "(model.safetensors).",
                "Download the whole checkpoint again.",
            )
        activation = str(config.get("activation_function", "")).rpartition(".")[2]
        if config.get("bias") or activation != _NO_ACTIVATION:
            what = "the bias" if config.get("bias") else f"the activation {activation}"
            raise _left_out(folder / place / "config.json", what)


def compare_embeddings(
    checkpoint: Checkpoint, file: Path, held: Environment, progress: Progress, *, most: float
) -> EmbeddingFindings:
    """Compare the embeddings of texts with those of the checkpoint.

    Args:
        file: as converted.
        most: that they may differ, as ``ComparedRows.relative``.

    Raises:
        DataError: they are others, or llama.cpp cannot compute them.
    """
    found = compared_by(
        *("check_embeddings.py", [file], EMBEDDING_PROGRAM, checkpoint, held),
        kind=EmbeddingFindings,
        progress=progress,
    )
    if found.engine:
        raise DataError(
            f"{checkpoint.folder}: llama.cpp cannot embed texts with the converted file: "
            f"{found.engine}.",
            "The pinned llama.cpp may not support this variant.",
        )
    if found.rows and found.rows.relative > most:
        raise DataError(
            f"{checkpoint.folder}: the converted file gives different embeddings of texts: they "
            f"differ by up to {found.rows.difference:.2g}, in the median by "
            f"{found.rows.relative:.1%} of their spread (at most {most:.0%} is allowed).",
            f"Compare config.json and {MODULES} with those of the model's publisher.",
        )
    return found


def _left_out(where: Path, what: str) -> DataError:
    return DataError(
        f"{where}: llama.cpp's converter would leave out {what}, and the embeddings would be "
        "different.",
        "Use a GGUF file of the model's publisher, or another model.",
    )


def _modules(folder: Path) -> list[tuple[str, str]]:
    """Return kind and folder of each module; none of a checkpoint without sentence-transformers."""
    path = folder / MODULES
    if not path.is_file():
        return []
    try:
        content = load_json(read_bounded(path, _MOST_BYTES, "Download it again.").decode())
        return [(str(each["type"]).rpartition(".")[2], str(each["path"])) for each in content]
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path}: expected a list of modules, each with 'type' and 'path'.",
            "Download the file again.",
        ) from error


def _object(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise DataError(f"{path}: this file is missing.", "Download the whole checkpoint again.")
    return read_object(path)
