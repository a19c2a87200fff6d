"""What a checkpoint can become: the forms, their types, and how large the results are."""

from __future__ import annotations

from typing import Literal, get_args

from armload.conversion.checkpoints.checkpoint import Checkpoint
from armload.core.errors import UsageError
from armload.core.validation_messages import nearest_first

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
    """Return the form that a person named.

    Raises:
        UsageError: there is none of that name.
    """
    for form in FORMS:
        if form == text:
            return form
    raise UsageError(f"--to {text}: there is no such form.", f"Available: {', '.join(FORMS)}.")


def check_type(form: Form, text: str, dtype: str) -> str:
    """Return the type of the weights that a person named, or the usual one for no name.

    Args:
        form: what the checkpoint becomes.
        text: what the person wrote.
        dtype: of the checkpoint's own weights.

    Raises:
        UsageError: the form has none of that name.
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
    """Return how large the result will be, about."""
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
