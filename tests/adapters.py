"""LoRA adapters with random weights for the matrices of any model."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
from gguf import GGUFReader, GGUFWriter

ALPHA, RANK = 16.0, 4
CHANGED = ("attn_q", "attn_v", "ffn_down")


def write_adapter(
    path: Path,
    base: Path,
    *,
    seed: int = 1,
    rank: int = RANK,
    architecture: str = "llama",
    kind: str = "adapter",
    adapter_type: str = "lora",
    alpha: float = ALPHA,
    wide: int = 0,
    only_a: bool = False,
    renamed: str = "",
) -> Path:
    """Write an adapter for some matrices of a model's file.

    Args:
        wide: by which the rows of the first factor are too long.
        only_a: leave the second factor out.
        renamed: what each tensor's name begins with instead.
    """
    random = np.random.default_rng(seed)
    writer = GGUFWriter(path, architecture)
    writer.add_type(kind)
    writer.add_string("adapter.type", adapter_type)
    writer.add_float32("adapter.lora.alpha", alpha)
    for tensor in GGUFReader(base).tensors:
        if any(each in tensor.name for each in CHANGED) and tensor.name.endswith(".weight"):
            columns, rows = (int(each) for each in tensor.shape[:2])
            name = renamed + tensor.name
            a = random.normal(0, 0.2, (rank, columns + wide)).astype(np.float32)
            b = random.normal(0, 0.2, (rows, rank)).astype(np.float32)
            writer.add_tensor(f"{name}.lora_a", a)
            if not only_a:
                writer.add_tensor(f"{name}.lora_b", b)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def merged(path: Path, base: Path, adapter: Path, scale: float) -> Path:
    """Write the model that an adapter makes of another one of 32-bit weights."""
    shutil.copy(base, path)
    factors = {tensor.name: np.array(tensor.data) for tensor in GGUFReader(adapter).tensors}
    for tensor in GGUFReader(path, "r+").tensors:
        if f"{tensor.name}.lora_a" in factors:
            a, b = (factors[f"{tensor.name}.lora_{each}"] for each in "ab")
            tensor.data[:] += (scale * ALPHA / len(a)) * (b @ a)
    return path
