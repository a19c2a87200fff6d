"""Which checkpoints the converters can convert, as far as reading tells."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path

from armload.conversion.checkpoints.checkpoint import Outline, read_object
from armload.core.errors import DataError, UsageError
from armload.core.validation_messages import nearest_first

_MAP = "TEXT_MODEL_MAP"


def gguf_architectures(source: Path) -> tuple[str, ...]:
    """Return the architectures that llama.cpp's converter knows, read from its source.

    Returns:
        The names, sorted; none if this source says it in another way.
    """
    try:
        tree = ast.parse((source / "conversion" / "__init__.py").read_text(encoding="utf-8"))
    except (OSError, SyntaxError):
        return ()
    for node in tree.body:
        if (
            isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and node.target.id == _MAP
            and isinstance(node.value, ast.Dict)
        ):
            keys = (key.value for key in node.value.keys if isinstance(key, ast.Constant))
            return tuple(sorted(str(key) for key in keys))
    return ()


def check_known_to_gguf(outline: Outline, known: Sequence[str]) -> None:
    """Refuse an architecture that llama.cpp's converter does not know.

    Raises:
        UsageError: it does not.
    """
    if known and outline.architecture not in known:
        raise _unknown(
            f"the architecture {outline.architecture}",
            "llama.cpp's converter",
            outline.architecture,
            known,
        )


def check_known_to_mnn(outline: Outline, known: Sequence[str]) -> None:
    """Refuse a model type that the MNN exporter does not know.

    Raises:
        UsageError: it does not.
    """
    if outline.model_type not in known:
        raise _unknown(
            f"the model type {outline.model_type or '(none)'}",
            "the MNN exporter",
            outline.model_type,
            known,
        )


def check_vocabulary(folder: Path, outline: Outline, pieces_alone: Sequence[str]) -> None:
    """Refuse a vocabulary that llama.cpp's converter cannot read for the architecture.

    Args:
        pieces_alone: architectures whose vocabulary must consist of sentence pieces.

    Raises:
        DataError: it cannot, or a file is malformed.
        DiskError: a file cannot be read.
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
            f"{pieces}: there is no such file, and the converter reads the vocabulary of "
            f"{outline.architecture} from sentence pieces only.",
            "Copy it into the folder from the repository of the model's publisher; a fine-tune "
            "has that of its base model.",
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
