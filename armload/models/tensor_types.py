"""The types of tensors: those that the pinned llama.cpp has, and whose the others are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class TensorType(NamedTuple):
    """How the weights of a tensor are stored.

    Attributes:
        name: as in ggml's ``enum ggml_type``.
        block_elements: weights in a block.
        block_bytes: that a block takes.
    """

    name: str
    block_elements: int
    block_bytes: int


# Printed by tests/tensor_types.py from the pinned source.
KNOWN_TYPES: Mapping[int, TensorType] = {
    0: TensorType("F32", 1, 4),
    1: TensorType("F16", 1, 2),
    2: TensorType("Q4_0", 32, 18),
    3: TensorType("Q4_1", 32, 20),
    6: TensorType("Q5_0", 32, 22),
    7: TensorType("Q5_1", 32, 24),
    8: TensorType("Q8_0", 32, 34),
    9: TensorType("Q8_1", 32, 36),
    10: TensorType("Q2_K", 256, 84),
    11: TensorType("Q3_K", 256, 110),
    12: TensorType("Q4_K", 256, 144),
    13: TensorType("Q5_K", 256, 176),
    14: TensorType("Q6_K", 256, 210),
    15: TensorType("Q8_K", 256, 292),
    16: TensorType("IQ2_XXS", 256, 66),
    17: TensorType("IQ2_XS", 256, 74),
    18: TensorType("IQ3_XXS", 256, 98),
    19: TensorType("IQ1_S", 256, 50),
    20: TensorType("IQ4_NL", 32, 18),
    21: TensorType("IQ3_S", 256, 110),
    22: TensorType("IQ2_S", 256, 82),
    23: TensorType("IQ4_XS", 256, 136),
    24: TensorType("I8", 1, 1),
    25: TensorType("I16", 1, 2),
    26: TensorType("I32", 1, 4),
    27: TensorType("I64", 1, 8),
    28: TensorType("F64", 1, 8),
    29: TensorType("IQ1_M", 256, 56),
    30: TensorType("BF16", 1, 2),
    34: TensorType("TQ1_0", 256, 54),
    35: TensorType("TQ2_0", 256, 66),
    39: TensorType("MXFP4", 32, 17),
    40: TensorType("NVFP4", 64, 36),
    41: TensorType("Q1_0", 128, 18),
    42: TensorType("Q2_0", 64, 18),
}

TYPE_NUMBERS: Mapping[str, int] = {each.name: number for number, each in KNOWN_TYPES.items()}

_REMOVED = {
    5: "Q4_3",
    31: "Q4_0_4_4",
    32: "Q4_0_4_8",
    33: "Q4_0_8_8",
    37: "IQ4_NL_4_8",
    38: "IQ4_NL_8_8",
}
"""``ggml.h`` keeps their numbers. It has 36 for IQ4_NL_4_4, of which no files are known."""

_OLLAMAS_MXFP4 = 4
"""Q4_2 until May 2023, and MXFP4 in the gpt-oss files of Ollama's library of August 2025."""

_FORKS = (
    (range(36, 37), "bitnet.cpp"),
    (range(43, 48), "llama-cpp-turboquant"),
    (range(97, 100), "ik_llama.cpp"),
    (range(100, 108), "ROCmFPX"),
    (range(142, 144), "PrismML's llama.cpp"),
    (range(133, 400), "ik_llama.cpp"),
)
"""Forks of llama.cpp by the numbers of their own types, as their ``ggml.h`` has them. Those that
several forks use are the one's of which files are on the hub."""

_TERNARY = "Use the TQ1_0 or TQ2_0 file of the same model."
_OWN_TYPES = (
    "Use a file of the same model in one of llama.cpp's own types, such as Q4_K_M or IQ4_XS."
)


def foreign_type(number: int) -> tuple[str, str]:
    """Say whose a type is that the pinned llama.cpp lacks, and what to do with such a file."""
    if number in _REMOVED:
        repacked = "IQ4_NL" if _REMOVED[number].startswith("IQ4_NL") else "Q4_0"
        remedy = f"Use the {repacked} file of the same model: llama.cpp now rearranges its weights "
        return f"{_REMOVED[number]}, which was made for an older llama.cpp", remedy + "itself."
    if number == _OLLAMAS_MXFP4:
        remedy = "Use the file of the same model that was made for llama.cpp, such as "
        return "which only Ollama has used, for MXFP4", f"{remedy}hf:ggml-org/gpt-oss-20b-GGUF."
    for numbers, fork in _FORKS:
        if number in numbers:
            return (
                f"which only {fork}, a fork of llama.cpp, has",
                _TERNARY if fork == "bitnet.cpp" else _OWN_TYPES,
            )
    remedy = "The file is damaged, or was made for a newer llama.cpp or a fork of it: download it "
    return "which llama.cpp does not have", f"{remedy}again. {_OWN_TYPES}"
