"""What a checkpoint can become, and which checkpoints the converters know."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, get_args

from armload.conversion.checkpoints.checkpoint import Checkpoint, CheckpointOutline, read_object
from armload.core.errors import DataError, UsageError
from armload.core.near_names import nearest_first

Form = Literal["gguf", "mnn"]
FORMS: tuple[Form, ...] = get_args(Form)

GGUF_BITS = {"F32": 32.0, "F16": 16.0, "BF16": 16.0, "Q8_0": 8.5, "TQ1_0": 1.6875, "TQ2_0": 2.0625}
"""Bits per weight of each type that llama.cpp's converter writes."""

MNN_BITS = {"4-bit": 4, "8-bit": 8}
"""Bits of a weight, without its block's scale and offset."""

_MNN_BLOCK = 64
_MNN_BLOCK_BITS = 2 * 32
_EMBEDDING_BITS = 16
_PYTHON_BYTES = 800_000_000


def check_form(text: str) -> Form:
    """Return the form that a person named."""
    for form in FORMS:
        if form == text:
            return form
    raise UsageError(f"--to {text}: there is no such format.", f"Available: {', '.join(FORMS)}.")


def check_type(form: Form, text: str, dtype: str) -> str:
    """Return the type of the weights that a person named, or the usual one for no name.

    Args:
        form: what the checkpoint becomes.
        text: what the person wrote.
        dtype: of the checkpoint's own weights.
    """
    known = list(GGUF_BITS if form == "gguf" else MNN_BITS)
    if not text:
        half = "F16" if dtype == "F16" else "BF16"
        return half if form == "gguf" else "4-bit"
    for name in known:
        if name.casefold() == text.casefold():
            return name
    further = (
        " For other types, convert to F16 first, then use model.quantize." if form == "gguf" else ""
    )
    raise UsageError(
        f"--type {text}: the conversion to {form} has no such type.",
        f"Available: {nearest_first(text.upper(), known)}.{further}",
    )


def result_bytes(form: Form, type_name: str, checkpoint: Checkpoint) -> int:
    if form == "gguf":
        return round(checkpoint.parameters * GGUF_BITS[type_name] / 8)
    bits = MNN_BITS[type_name] + _MNN_BLOCK_BITS / _MNN_BLOCK
    embedding = 0 if checkpoint.tied else checkpoint.largest_tensor * _EMBEDDING_BITS / 8
    return round(checkpoint.parameters * bits / 8 + embedding)


def memory_bytes(form: Form, checkpoint: Checkpoint) -> int:
    """Return how much memory the conversion takes, about.

    llama.cpp's converter works on one tensor at a time; llmexport loads the whole model.
    """
    if form == "gguf":
        return _PYTHON_BYTES + 3 * 4 * checkpoint.largest_tensor
    return _PYTHON_BYTES + 2 * checkpoint.size_bytes + 2 * 4 * checkpoint.largest_tensor


_MAP, _PROJECTORS = "TEXT_MODEL_MAP", "MMPROJ_MODEL_MAP"


def gguf_architectures(source: Path) -> tuple[str, ...]:
    """Return the architectures that llama.cpp's converter knows, read from its source.

    Returns:
        The names, sorted; none if this source says it in another way.
    """
    return tuple(sorted(_modules(source)))


def gguf_module(source: Path, architecture: str) -> str:
    """Return the module of llama.cpp's converter for an architecture; empty where none is known."""
    return _modules(source).get(architecture, "")


def gguf_projectors(source: Path) -> tuple[str, ...]:
    """Return the architectures that it writes a projector for."""
    return tuple(sorted(_modules(source, _PROJECTORS)))


def _modules(source: Path, name: str = _MAP) -> Mapping[str, str]:
    try:
        tree = ast.parse((source / "conversion" / "__init__.py").read_text(encoding="utf-8"))
    except (OSError, SyntaxError):
        return {}
    for node in tree.body:
        if (
            isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and node.target.id == name
            and isinstance(node.value, ast.Dict)
        ):
            return {
                str(key.value): str(value.value)
                for key, value in zip(node.value.keys, node.value.values, strict=True)
                if isinstance(key, ast.Constant) and isinstance(value, ast.Constant)
            }
    return {}


def check_known_to_gguf(outline: CheckpointOutline, known: Sequence[str]) -> None:
    """Refuse an architecture that llama.cpp's converter does not know."""
    if known and outline.architecture not in known:
        raise _unknown(
            f"the architecture {outline.architecture}",
            "llama.cpp's converter",
            outline.architecture,
            known,
        )


def check_known_to_mnn(outline: CheckpointOutline, known: Sequence[str]) -> None:
    """Refuse a model type that the MNN exporter does not know."""
    if outline.model_type not in known:
        raise _unknown(
            f"the model type {outline.model_type or '(none)'}",
            "the MNN exporter",
            outline.model_type,
            known,
        )


def check_vocabulary(folder: Path, outline: CheckpointOutline, pieces_alone: Sequence[str]) -> None:
    """Refuse a vocabulary that llama.cpp's converter cannot read for the architecture.

    Args:
        pieces_alone: architectures whose vocabulary must consist of sentence pieces.
    """
    pieces, stated = folder / "tokenizer.model", folder / "tokenizer.json"
    if pieces.is_file():
        return
    tokenizer = read_object(stated) if stated.is_file() else {}
    model = tokenizer.get("model") or {}
    if model.get("type") == "BPE" and model.get("byte_fallback"):
        return
    settings = folder / "tokenizer_config.json"
    kind = read_object(settings).get("tokenizer_class") if settings.is_file() else None
    if outline.architecture in pieces_alone and kind != "GPT2Tokenizer":  # Phi-4 is a Phi-3
        raise DataError(
            f"{pieces}: this file is missing, and the converter reads the vocabulary of "
            f"{outline.architecture} only from a SentencePiece model.",
            "Copy it into the folder from the repository of the model's publisher; a fine-tuned "
            "model has that of its base model.",
        )
    config = read_object(folder / "config.json")
    size = (config.get("text_config") or config).get("vocab_size")
    ids = (
        [
            *(model.get("vocab") or {}).values(),
            *(each["id"] for each in tokenizer.get("added_tokens") or ()),
        ]
        if isinstance(model.get("vocab"), dict)
        else []
    )
    if isinstance(size, int) and ids and max(ids) >= size:
        raise DataError(
            f"{stated}: the vocabulary has tokens up to number {max(ids)}, but config.json has "
            f"'vocab_size': {size}.",
            "Use the tokenizer that belongs to these weights, or call "
            "model.resize_token_embeddings(len(tokenizer)) and save the model again.",
        )


def _unknown(what: str, converter: str, name: str, known: Sequence[str]) -> UsageError:
    return UsageError(
        f"config.json: {converter} does not know {what}.",
        f"It knows: {nearest_first(name, known)}.",
    )
