"""Which checkpoints the converters know, as far as reading tells."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path

from armload.conversion.checkpoints.checkpoint import Outline
from armload.core.errors import UsageError
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


def _unknown(what: str, converter: str, name: str, known: Sequence[str]) -> UsageError:
    return UsageError(
        f"config.json: {converter} does not know {what}.",
        f"It knows: {nearest_first(name, known)}.",
    )
