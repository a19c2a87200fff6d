"""Which weights llama.cpp copies into another layout when it loads a model, and when it may."""

from __future__ import annotations

from collections.abc import Collection

from armload.models.model import Model

_WITH_DOT_PRODUCT = frozenset(("Q4_0", "Q4_K", "Q5_K", "Q6_K", "Q8_0", "IQ4_NL", "MXFP4", "Q1_0"))
_WITH_AVX2 = frozenset(("Q4_0", "Q4_K", "IQ4_NL", "MXFP4"))


def repacks(model: Model, memory_available_bytes: int, context: int) -> bool:
    """Tell whether the engine should rearrange the weights in memory.

    Rearranged weights are a second copy beside the mapped file, so this pays only where
    both fit.
    """
    kv_bytes = model.context_memory.size_bytes(context)
    return 2 * model.size_bytes + kv_bytes < 0.8 * memory_available_bytes


def repacked_bytes(model: Model, features: Collection[str]) -> int:
    """Return the size of that copy, by the types for which llama.cpp has kernels.

    Those are the rules of ``ggml_repack_get_optimal_repack_type``, without those for SVE.

    Args:
        features: of the CPU that the program is compiled for.
    """
    if "asimddp" in features:
        types = _WITH_DOT_PRODUCT
    elif "avx2" in features:
        types = _WITH_AVX2 | ({"Q2_K"} if "avx512f" in features else set())
    else:
        types = frozenset()
    return sum(size for name, size in model.matrix_bytes.items() if name in types)
