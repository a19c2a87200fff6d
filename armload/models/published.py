"""Where trained weights of models are that are known by their sizes."""

from __future__ import annotations

SMOLLM2 = "smollm2"
"""The name of SmolLM2-135M-Instruct in ``Q4_1``."""

_ALL = ("Q4_0", "Q4_K_M", "Q8_0")
PUBLISHED = {
    "smollm2-135m": (SMOLLM2, ("Q4_1",)),
    "qwen2.5-0.5b": ("hf:Qwen/Qwen2.5-0.5B-Instruct-GGUF", _ALL),
    "llama-3.2-1b": ("hf:bartowski/Llama-3.2-1B-Instruct-GGUF", _ALL),
    "gemma-3-1b": ("hf:ggml-org/gemma-3-1b-it-GGUF", ("Q4_K_M", "Q8_0")),
    "qwen2.5-1.5b": ("hf:Qwen/Qwen2.5-1.5B-Instruct-GGUF", _ALL),
    "qwen3-1.7b": ("hf:Qwen/Qwen3-1.7B-GGUF", ("Q8_0",)),
    "qwen3-4b": ("hf:Qwen/Qwen3-4B-GGUF", ("Q4_K_M", "Q8_0")),
}
"""Models of the list that ``fit`` makes, each with its repository and the types found there.

Each file of these types was found named, most with its size or SHA-256, in public repositories that
download it. One comes with a package instead.
"""


def published_types(name: str) -> tuple[str, ...]:
    """Return the file types of which armload knows a file; none where it knows no repository."""
    return PUBLISHED[name][1] if name in PUBLISHED else ()


def published_as(name: str, file_type: str) -> str:
    """Return what a model is called where it is published; empty where armload knows no file."""
    if file_type.upper() not in published_types(name):
        return ""
    place = PUBLISHED[name][0]
    return place if place == SMOLLM2 else f"{place}:{file_type.upper()}"


def is_smollm2(name: str) -> bool:
    """Return whether ``NAME:TYPE`` is the model that a Python package holds, and no hub."""
    family, _, file_type = name.partition(":")
    return published_as(family, file_type) == SMOLLM2
