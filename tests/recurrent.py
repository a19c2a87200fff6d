"""Tiny models with random weights whose layers are not all attention."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from gguf import GGUFReader, GGUFWriter

WIDTH, INNER, STATE, RANK, LAYERS, KERNEL = 32, 64, 8, 4, 2, 4

Shapes = dict[str, tuple[int, ...]]


def recurrent_model(tokenizer: Path, path: Path) -> Path:
    """Write a Mamba model to ``path``, with the tokens of another model file.

    Its memory cannot give back single tokens.
    """
    writer = _writer(tokenizer, path, "mamba")
    writer.add_feed_forward_length(0)
    writer.add_head_count(0)
    writer.add_ssm_conv_kernel(KERNEL)
    writer.add_ssm_inner_size(INNER)
    writer.add_ssm_state_size(STATE)
    writer.add_ssm_time_step_rank(RANK)
    layer: Shapes = {
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
    return _written(writer, path, "output_norm", [layer] * LAYERS)


def hybrid_model(tokenizer: Path, path: Path) -> Path:
    """Write an LFM2 model to ``path``: its first layer is a convolution, the other attention."""
    heads, width = 2, WIDTH // 2
    writer = _writer(tokenizer, path, "lfm2")
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(heads)
    writer.add_head_count_kv([0, heads])
    writer.add_shortconv_l_cache(KERNEL)
    both: Shapes = {
        "attn_norm.weight": (WIDTH,),
        "ffn_norm.weight": (WIDTH,),
        "ffn_gate.weight": (INNER, WIDTH),
        "ffn_up.weight": (INNER, WIDTH),
        "ffn_down.weight": (WIDTH, INNER),
    }
    convolution: Shapes = {
        "shortconv.conv.weight": (WIDTH, KERNEL),
        "shortconv.in_proj.weight": (3 * WIDTH, WIDTH),
        "shortconv.out_proj.weight": (WIDTH, WIDTH),
    }
    matrices = ("attn_q", "attn_k", "attn_v", "attn_output")
    attention: Shapes = {f"{name}.weight": (WIDTH, WIDTH) for name in matrices}
    attention |= {"attn_q_norm.weight": (width,), "attn_k_norm.weight": (width,)}
    return _written(writer, path, "token_embd_norm", [both | convolution, both | attention])


def predicting_model(tokenizer: Path, path: Path) -> Path:
    """Write a Qwen3.5 model to ``path``: a recurrent layer, attention, and a layer for MTP."""
    heads, width, state = 2, WIDTH // 2, WIDTH // 2
    writer = _writer(tokenizer, path, "qwen35", LAYERS + 1)
    writer.add_nextn_predict_layers(1)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(heads)
    writer.add_head_count_kv(heads)
    writer.add_key_length(width)
    writer.add_value_length(width)
    writer.add_full_attention_interval(LAYERS)
    writer.add_rope_dimension_count(width)
    writer.add_rope_dimension_sections([4, 2, 2, 0])
    writer.add_ssm_conv_kernel(KERNEL)
    writer.add_ssm_inner_size(heads * state)
    writer.add_ssm_state_size(state)
    writer.add_ssm_time_step_rank(heads)
    writer.add_ssm_group_count(heads)
    all_of_them: Shapes = {
        "attn_norm.weight": (WIDTH,),
        "post_attention_norm.weight": (WIDTH,),
        "ffn_gate.weight": (INNER, WIDTH),
        "ffn_up.weight": (INNER, WIDTH),
        "ffn_down.weight": (WIDTH, INNER),
    }
    recurrent: Shapes = {
        "attn_qkv.weight": (3 * heads * state, WIDTH),
        "attn_gate.weight": (heads * state, WIDTH),
        "ssm_conv1d.weight": (3 * heads * state, KERNEL),
        "ssm_dt.bias": (heads,),
        "ssm_a": (heads,),
        "ssm_alpha.weight": (heads, WIDTH),
        "ssm_beta.weight": (heads, WIDTH),
        "ssm_norm.weight": (state,),
        "ssm_out.weight": (WIDTH, heads * state),
    }
    attention: Shapes = {
        "attn_q.weight": (2 * heads * width, WIDTH),
        "attn_k.weight": (heads * width, WIDTH),
        "attn_v.weight": (heads * width, WIDTH),
        "attn_output.weight": (WIDTH, heads * width),
        "attn_q_norm.weight": (width,),
        "attn_k_norm.weight": (width,),
    }
    predicting: Shapes = {
        "nextn.eh_proj.weight": (WIDTH, 2 * WIDTH),
        "nextn.enorm.weight": (WIDTH,),
        "nextn.hnorm.weight": (WIDTH,),
        "nextn.shared_head_norm.weight": (WIDTH,),
    }
    layers = [recurrent, attention, attention | predicting]
    return _written(writer, path, "output_norm", [all_of_them | layer for layer in layers])


def _writer(tokenizer: Path, path: Path, architecture: str, layers: int = LAYERS) -> GGUFWriter:
    fields = GGUFReader(tokenizer).fields
    tokens, scores, kinds = (
        fields[f"tokenizer.ggml.{name}"].contents() for name in ("tokens", "scores", "token_type")
    )
    writer = GGUFWriter(path, architecture)
    writer.add_context_length(512)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(layers)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10_000.0)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores(scores)
    writer.add_token_types(kinds)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_tensor("token_embd.weight", _values("token_embd.weight", (len(tokens), WIDTH)))
    return writer


def _written(writer: GGUFWriter, path: Path, last_norm: str, layers: list[Shapes]) -> Path:
    shapes: Shapes = {f"{last_norm}.weight": (WIDTH,)}
    for number, layer in enumerate(layers):
        shapes |= {f"blk.{number}.{name}": shape for name, shape in layer.items()}
    for name, shape in shapes.items():
        writer.add_tensor(name, _values(name, shape))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _values(name: str, shape: tuple[int, ...]) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    if name.endswith("ssm_a"):
        return np.full(shape, -1, np.float32)
    if "norm" in name:
        return np.ones(shape, np.float32)
    return np.random.default_rng(1).normal(0, 0.3, shape).astype(np.float32)
