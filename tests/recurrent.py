"""A tiny recurrent model with random weights: its memory cannot give back single tokens."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from gguf import GGUFReader, GGUFWriter

WIDTH, INNER, STATE, RANK, LAYERS, KERNEL = 32, 64, 8, 4, 2, 4


def recurrent_model(tokenizer: Path, path: Path) -> Path:
    """Write a Mamba model to ``path``, with the tokens of another model file."""
    fields = GGUFReader(tokenizer).fields
    tokens, scores, kinds = (
        fields[f"tokenizer.ggml.{name}"].contents() for name in ("tokens", "scores", "token_type")
    )
    writer = GGUFWriter(path, "mamba")
    writer.add_context_length(512)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(0)
    writer.add_head_count(0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_ssm_conv_kernel(KERNEL)
    writer.add_ssm_inner_size(INNER)
    writer.add_ssm_state_size(STATE)
    writer.add_ssm_time_step_rank(RANK)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores(scores)
    writer.add_token_types(kinds)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    for name, shape in _tensors(len(tokens)).items():
        writer.add_tensor(name, _values(name, shape))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _tensors(vocabulary: int) -> dict[str, tuple[int, ...]]:
    layer: dict[str, tuple[int, ...]] = {
        "attn_norm.weight": (WIDTH,),
        "ssm_in.weight": (2 * INNER, WIDTH),
        "ssm_conv1d.weight": (INNER, KERNEL),
        "ssm_conv1d.bias": (INNER,),
        "ssm_x.weight": (RANK + 2 * STATE, INNER),
        "ssm_dt.weight": (INNER, RANK),
        "ssm_dt.bias": (INNER,),
        "ssm_a": (INNER, STATE),
        "ssm_d": (INNER,),
        "ssm_out.weight": (WIDTH, INNER),
    }
    layers = {
        f"blk.{number}.{name}": shape for number in range(LAYERS) for name, shape in layer.items()
    }
    return {"token_embd.weight": (vocabulary, WIDTH), "output_norm.weight": (WIDTH,), **layers}


def _values(name: str, shape: tuple[int, ...]) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    if name.endswith("ssm_a"):
        return np.full(shape, -1, np.float32)
    if "norm" in name:
        return np.ones(shape, np.float32)
    return np.random.default_rng(1).normal(0, 0.3, shape).astype(np.float32)
