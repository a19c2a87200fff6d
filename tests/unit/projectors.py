"""Projector files for tests: small ones, of the kinds that llama.cpp knows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from gguf import GGUFWriter

Keys = Mapping[str, int | bool | str | None]

VISION: Keys = {
    "has_vision_encoder": True,
    "projector_type": "idefics3",
    "vision.block_count": 2,
    "vision.embedding_length": 32,
    "vision.feed_forward_length": 64,
    "vision.projection_dim": 48,
    "vision.attention.head_count": 4,
    "vision.image_size": 64,
    "vision.patch_size": 16,
    "vision.projector.scale_factor": 2,
    "vision.preproc_image_size": 256,
}
AUDIO: Keys = {
    "has_audio_encoder": True,
    "projector_type": "ultravox",
    "audio.block_count": 2,
    "audio.embedding_length": 32,
    "audio.feed_forward_length": 64,
    "audio.projection_dim": 48,
    "audio.attention.head_count": 4,
    "audio.num_mel_bins": 80,
    "audio.projector.stack_factor": 8,
}
OUTPUTS = {
    "idefics3": ("mm.model.fc.weight", (48, 128)),
    "gemma3": ("mm.input_projection.weight", (32, 48)),
    "qwen2.5vl_merger": ("mm.2.bias", (48,)),
    "ultravox": ("mm.a.mlp.2.weight", (48, 32)),
}


def written_projector(
    path: Path, keys: Keys = VISION, *, changes: Keys | None = None, layers: int = 2
) -> Path:
    """Write a projector.

    Args:
        changes: of the keys; none to leave one out.
        layers: that it has tensors of.
    """
    found = {**keys, **(changes or {})}
    writer = GGUFWriter(path, "clip")
    writer.add_type("mmproj")
    writer.add_name("Tiny")
    for key, value in found.items():
        if isinstance(value, bool):
            writer.add_bool(f"clip.{key}", value)
        elif isinstance(value, str):
            writer.add_string(f"clip.{key}", value)
        elif value is not None:
            writer.add_uint32(f"clip.{key}", value)
    letter = "a" if "has_audio_encoder" in found else "v"
    for layer in range(layers):
        writer.add_tensor(f"{letter}.blk.{layer}.attn_q.weight", np.ones((32, 32), np.float16))
    name, shape = OUTPUTS.get(str(found.get("projector_type")), ("mm.0.weight", (48, 32)))
    writer.add_tensor(name, np.ones(shape, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
