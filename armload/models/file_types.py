"""The file types that llama-quantize writes, and which of them need an importance matrix.

Source: ``tools/quantize/quantize.cpp`` and ``src/llama-quant.cpp`` of llama.cpp (2026-10).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from armload.core.errors import UsageError
from armload.core.near_names import available, did_you_mean
from armload.models.header import Header

TENSOR_TYPES: Mapping[str, str] = {
    "F32": "F32",
    "F16": "F16",
    "BF16": "BF16",
    "Q8_0": "Q8_0",
    "Q6_K": "Q6_K",
    "Q5_K_M": "Q5_K",
    "Q5_K_S": "Q5_K",
    "Q5_1": "Q5_1",
    "Q5_0": "Q5_0",
    "Q4_K_M": "Q4_K",
    "Q4_K_S": "Q4_K",
    "Q4_1": "Q4_1",
    "Q4_0": "Q4_0",
    "IQ4_NL": "IQ4_NL",
    "IQ4_XS": "IQ4_XS",
    "MXFP4_MOE": "MXFP4",
    "Q3_K_L": "Q3_K",
    "Q3_K_M": "Q3_K",
    "Q3_K_S": "Q3_K",
    "IQ3_M": "IQ3_S",
    "IQ3_S": "IQ3_S",
    "IQ3_XS": "IQ3_S",
    "IQ3_XXS": "IQ3_XXS",
    "Q2_K": "Q2_K",
    "Q2_K_S": "Q2_K",
    "Q2_0": "Q2_0",
    "TQ2_0": "TQ2_0",
    "IQ2_M": "IQ2_S",
    "IQ2_S": "IQ2_XS",
    "IQ2_XS": "IQ2_XS",
    "IQ2_XXS": "IQ2_XXS",
    "TQ1_0": "TQ1_0",
    "IQ1_M": "IQ1_M",
    "IQ1_S": "IQ1_S",
    "Q1_0": "Q1_0",
}
"""File types, each with the tensor type of most matrices."""

_ALIASES = {"Q3_K": "Q3_K_M", "Q4_K": "Q4_K_M", "Q5_K": "Q5_K_M"}

_NEED_IMPORTANCE = {
    *("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M", "IQ3_XXS", "IQ3_XS", "Q2_K_S")
}
"""Types that have matrices which llama-quantize refuses to make without an importance matrix."""

UNQUANTISED = ("F64", "F32", "F16", "BF16", "I8", "I16", "I32", "I64")
"""Tensor types that hold plain numbers."""


def file_type(name: str) -> str:
    """Return a file type in its usual spelling.

    Raises:
        ValueError: there is no such type; the nearest names are offered.
    """
    usual = usual_type(name)
    if usual in TENSOR_TYPES:
        return usual
    raise ValueError(
        f"llama-quantize has no type {name.strip()!a}. "
        f"{available(usual, TENSOR_TYPES, 'armload model.quantize --help')}"
    )


def usual_type(name: str) -> str:
    """Return a file type, which need not exist, in the usual spelling."""
    usual = name.strip().upper()
    return _ALIASES.get(usual, usual)


def needs_importance(file_type: str) -> bool:
    """Say whether llama-quantize makes a type with an importance matrix only."""
    return file_type in _NEED_IMPORTANCE


def distinct_file_types(names: Sequence[str]) -> tuple[str, ...]:
    """Return file types in their usual spelling.

    Raises:
        ValueError: there is no such type, or one is listed twice.
    """
    found: dict[str, str] = {}
    for name in names:
        usual = file_type(name)
        if usual in found:
            raise ValueError(f"{found[usual]} and {name} are the same type; list each type once")
        found[usual] = name
    return tuple(found)


def check_importance(file_types: Sequence[str], *, has_importance: bool) -> None:
    """Refuse types that llama-quantize makes with an importance matrix only."""
    lacking = [each for each in file_types if each in _NEED_IMPORTANCE]
    if lacking and not has_importance:
        raise UsageError(
            f"--type {','.join(lacking)}: this needs an importance matrix, which is computed from "
            "a text.",
            "Give armload model.quantize a text like those that the model will see: "
            "--calibration FILE.",
        )


def type_meant(name: str, known: Iterable[str]) -> str:
    """Return what ``did_you_mean`` does for a file type, in which an O may stand for a zero."""
    return did_you_mean(name.upper().replace("O", "0"), known)


def quantised_types(header: Header) -> tuple[str, ...]:
    """Return the quantised types that a file's tensors have, each once."""
    types = dict.fromkeys(tensor.type_name for tensor in header.tensors)
    return tuple(each for each in types if each not in UNQUANTISED)
