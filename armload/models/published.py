"""Where trained weights of models are that are known by their sizes."""

from __future__ import annotations

_ALL = ("Q4_0", "Q4_K_M", "Q8_0")
PUBLISHED = {
    "qwen2.5-0.5b": ("hf:Qwen/Qwen2.5-0.5B-Instruct-GGUF", _ALL),
    "llama-3.2-1b": ("hf:bartowski/Llama-3.2-1B-Instruct-GGUF", _ALL),
    "gemma-3-1b": ("hf:ggml-org/gemma-3-1b-it-GGUF", ("Q4_K_M", "Q8_0")),
    "qwen2.5-1.5b": ("hf:Qwen/Qwen2.5-1.5B-Instruct-GGUF", _ALL),
    "qwen3-1.7b": ("hf:Qwen/Qwen3-1.7B-GGUF", ("Q8_0",)),
    "qwen3-4b": ("hf:Qwen/Qwen3-4B-GGUF", ("Q4_K_M", "Q8_0")),
}
"""Models of the list that ``fit`` makes, each with its repository and the types found there.

Each file of these types was found named, most with its size or SHA-256, in public repositories that
download it. Smaller models are left out: few of their sentences make sense.
"""


def published_types(name: str) -> tuple[str, ...]:
    """Return the file types of which armload knows a file; none where it knows no repository."""
    return PUBLISHED[name][1] if name in PUBLISHED else ()


def published_as(name: str, file_type: str) -> str:
    """Return what a model is called on the hub; empty where armload knows no file of it."""
    known = file_type.upper() in published_types(name)
    return f"{PUBLISHED[name][0]}:{file_type.upper()}" if known else ""
