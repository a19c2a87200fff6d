"""A small model that sees: a projector with random weights, and a language model beside it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from gguf import GGUFReader, GGUFWriter

from tests.chat_models import with_chat_template

TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant: "
PATCH, MERGE, INNER, LAYERS, SIDE = 16, 2, 64, 2, 16


def write_projector(path: Path, *, width: int, kind: str = "lfm2", seed: int = 1) -> Path:
    """Write a projector of LFM2-VL's type, whose number of tokens follows from the image's size."""
    random = np.random.default_rng(seed)
    writer = GGUFWriter(path, "clip")
    writer.add_bool("clip.has_vision_encoder", val=True)
    writer.add_string("clip.projector_type", kind)
    writer.add_bool("clip.use_gelu", val=True)
    for key, number in {
        "image_size": SIDE * PATCH,
        "patch_size": PATCH,
        "embedding_length": INNER,
        "feed_forward_length": 2 * INNER,
        "block_count": LAYERS,
        "projection_dim": width,
        "attention.head_count": 4,
        "projector.scale_factor": MERGE,
    }.items():
        writer.add_uint32(f"clip.vision.{key}", number)
    writer.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-6)
    for key in ("image_mean", "image_std"):
        writer.add_array(f"clip.vision.{key}", [0.5, 0.5, 0.5])

    def add(name: str, *shape: int) -> None:
        is_norm = "ln" in name and name.endswith("weight")
        values = np.ones(shape) if is_norm else random.normal(0, 0.05, shape)
        writer.add_tensor(name, values.astype(np.float32))

    def add_linear(name: str, rows: int, columns: int) -> None:
        add(f"{name}.weight", rows, columns)
        add(f"{name}.bias", rows)

    add("v.patch_embd.weight", INNER, 3, PATCH, PATCH)
    add("v.patch_embd.bias", INNER)
    add("v.position_embd.weight", SIDE * SIDE, INNER)
    for layer in range(LAYERS):
        block = f"v.blk.{layer}"
        for role in ("attn_q", "attn_k", "attn_v", "attn_out"):
            add_linear(f"{block}.{role}", INNER, INNER)
        add_linear(f"{block}.ffn_up", 2 * INNER, INNER)
        add_linear(f"{block}.ffn_down", INNER, 2 * INNER)
        for norm in ("ln1", "ln2"):
            add(f"{block}.{norm}.weight", INNER)
            add(f"{block}.{norm}.bias", INNER)
    add("v.post_ln.weight", INNER)
    add("v.post_ln.bias", INNER)
    add_linear("mm.1", 2 * INNER, INNER * MERGE * MERGE)
    add_linear("mm.2", width, 2 * INNER)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_seeing(folder: Path, model: Path) -> tuple[Path, Path]:
    """Write a copy of a model with a template, and a projector for it; return both."""
    fields = GGUFReader(model).fields
    architecture = fields["general.architecture"].contents()
    width = int(fields[f"{architecture}.embedding_length"].contents())
    return (
        with_chat_template(model, folder / "seeing-Q8_0.gguf", TEMPLATE),
        write_projector(folder / "mmproj-seeing-f32.gguf", width=width),
    )
