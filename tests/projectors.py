"""A small model that sees: a projector with random weights, and a language model beside it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from gguf import GGUFReader, GGUFWriter

from tests.chat_models import with_chat_template

TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant: "
PATCH, MERGE, INNER, LAYERS, SIDE = 16, 2, 64, 2, 16


class _Written:
    """A projector that is being written, with random weights."""

    def __init__(self, path: Path, kind: str, part: str, numbers: Mapping[str, int]) -> None:
        self._random = np.random.default_rng(1)
        self.writer = GGUFWriter(path, "clip")
        self.writer.add_bool(f"clip.has_{part}_encoder", val=True)
        self.writer.add_string("clip.projector_type", kind)
        self.writer.add_bool("clip.use_gelu", val=True)
        usual = {
            "embedding_length": INNER,
            "feed_forward_length": 2 * INNER,
            "block_count": LAYERS,
            "attention.head_count": 4,
        }
        for key, number in {**usual, **numbers}.items():
            self.writer.add_uint32(f"clip.{part}.{key}", number)
        self.writer.add_float32(f"clip.{part}.attention.layer_norm_epsilon", 1e-6)

    def add(self, name: str, *shape: int) -> None:
        is_norm = "ln" in name and name.endswith("weight")
        values = np.ones(shape) if is_norm else self._random.normal(0, 0.05, shape)
        kind = np.float16 if "conv1d" in name and name.endswith("weight") else np.float32
        self.writer.add_tensor(name, values.astype(kind))

    def add_linear(self, name: str, rows: int, columns: int, *, has_bias: bool = True) -> None:
        self.add(f"{name}.weight", rows, columns)
        if has_bias:
            self.add(f"{name}.bias", rows)

    def add_blocks(self, letter: str, *, has_key_bias: bool) -> None:
        for layer in range(LAYERS):
            block = f"{letter}.blk.{layer}"
            for role in ("attn_q", "attn_k", "attn_v", "attn_out"):
                has_bias = has_key_bias or role != "attn_k"
                self.add_linear(f"{block}.{role}", INNER, INNER, has_bias=has_bias)
            self.add_linear(f"{block}.ffn_up", 2 * INNER, INNER)
            self.add_linear(f"{block}.ffn_down", INNER, 2 * INNER)
            for norm in (f"{block}.ln1", f"{block}.ln2"):
                self.add_norm(norm)
        self.add_norm(f"{letter}.post_ln")

    def add_norm(self, name: str) -> None:
        self.add(f"{name}.weight", INNER)
        self.add(f"{name}.bias", INNER)

    def close(self) -> None:
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()


def write_projector(path: Path, *, width: int, hidden: int = 2 * INNER) -> Path:
    """Write a projector of LFM2-VL's type, whose number of tokens follows from the image's size.

    Args:
        hidden: between its last two matrices, which makes them large and takes little time.
    """
    sizes = {"image_size": SIDE * PATCH, "patch_size": PATCH, "projector.scale_factor": MERGE}
    written = _Written(path, "lfm2", "vision", {**sizes, "projection_dim": width})
    for key in ("image_mean", "image_std"):
        written.writer.add_array(f"clip.vision.{key}", [0.5, 0.5, 0.5])
    written.add("v.patch_embd.weight", INNER, 3, PATCH, PATCH)
    written.add("v.patch_embd.bias", INNER)
    written.add("v.position_embd.weight", SIDE * SIDE, INNER)
    written.add_blocks("v", has_key_bias=True)
    written.add_linear("mm.1", hidden, INNER * MERGE * MERGE)
    written.add_linear("mm.2", width, hidden)
    written.close()
    return path


def write_hearing_projector(path: Path, *, width: int, kind: str = "qwen2a") -> Path:
    """Write a projector of Qwen2-Audio's or Voxtral's type, which take half a minute at a time."""
    stack = {"projector.stack_factor": 4} if kind == "voxtral" else {}
    numbers = {"num_mel_bins": 80, "projection_dim": width, **stack}
    written = _Written(path, kind, "audio", numbers)
    written.add("a.conv1d.1.weight", INNER, 80, 3)
    written.add("a.conv1d.1.bias", INNER, 1)
    written.add("a.conv1d.2.weight", INNER, INNER, 3)
    written.add("a.conv1d.2.bias", INNER, 1)
    written.add("a.position_embd.weight", 1500, INNER)
    written.add_blocks("a", has_key_bias=False)
    if kind == "voxtral":
        written.add_linear("mm.a.mlp.1", width, 4 * INNER, has_bias=False)
        written.add_linear("mm.a.mlp.2", width, width, has_bias=False)
    else:
        written.add_linear("mm.a.fc", width, INNER)
    written.close()
    return path


def with_context(path: Path, tokens: int) -> Path:
    """Make a model say that it was trained for that many tokens."""
    reader = GGUFReader(path, "r+")
    architecture = reader.fields["general.architecture"].contents()
    reader.fields[f"{architecture}.context_length"].parts[-1][0] = tokens
    reader.data.flush()
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
