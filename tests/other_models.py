"""Models of random weights in Q8_0: dense, hybrid, recurrent, windowed, of experts, and with
embeddings for each layer. Tensors are in the order in which llama.cpp's converter writes them.

The vocabulary has 32,000 tokens; the sizes of the hybrid, recurrent and windowed ones are otherwise
those of published models.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import quantize

from armload.models.vocabulary import BEGIN_ID, END_ID, UNKNOWN_ID, vocabulary

VOCABULARY = 32_000
CONTEXT = 8192

Shapes = dict[str, tuple[int, ...]]


def dense(path: Path) -> None:
    """Write a model like Llama, of some 170 MB."""
    width, inner, heads, kv_heads = 1024, 2816, 16, 4
    layer = _gated(width, inner) | _attention(width, width, kv_heads * width // heads)
    keys: Mapping[str, object] = {
        "embedding_length": width,
        "feed_forward_length": inner,
        "attention.head_count": heads,
        "attention.head_count_kv": kv_heads,
    }
    _write(path, "llama", keys, [layer] * 11, width)


def experts(path: Path) -> None:
    """Write a model like Qwen3-30B-A3B, of 16 experts, and smaller, of some 190 MB."""
    width, inner, heads, kv_heads, head, count = 1024, 384, 16, 4, 64, 16
    layer = _attention(width, heads * head, kv_heads * head) | {
        "attn_norm.weight": (width,),
        "attn_q_norm.weight": (head,),
        "attn_k_norm.weight": (head,),
        "ffn_norm.weight": (width,),
        "ffn_gate_inp.weight": (count, width),
        "ffn_gate_exps.weight": (count, inner, width),
        "ffn_up_exps.weight": (count, inner, width),
        "ffn_down_exps.weight": (count, width, inner),
    }
    keys: Mapping[str, object] = {
        "embedding_length": width,
        "feed_forward_length": inner,
        "attention.head_count": heads,
        "attention.head_count_kv": kv_heads,
        "attention.key_length": head,
        "attention.value_length": head,
        "expert_count": count,
        "expert_used_count": 2,
        "expert_feed_forward_length": inner,
    }
    _write(path, "qwen3moe", keys, [layer] * 6, width)


def hybrid(path: Path) -> None:
    """Write a model like LFM2-350M: convolutions, and attention in six of 16 layers."""
    width, inner, heads, kv_heads, cached = 1024, 4608, 16, 8, 3
    with_attention = (2, 5, 8, 10, 12, 14)
    head = width // heads
    layers = []
    for number in range(16):
        layer = _gated(width, inner)
        if number in with_attention:
            layer |= _attention(width, heads * head, kv_heads * head)
            layer |= {"attn_q_norm.weight": (head,), "attn_k_norm.weight": (head,)}
        else:
            layer |= {
                "shortconv.conv.weight": (width, cached),
                "shortconv.in_proj.weight": (3 * width, width),
                "shortconv.out_proj.weight": (width, width),
            }
        layers.append(layer)
    keys: Mapping[str, object] = {
        "embedding_length": width,
        "feed_forward_length": inner,
        "attention.head_count": heads,
        "attention.head_count_kv": [
            kv_heads if number in with_attention else 0 for number in range(16)
        ],
        "shortconv.l_cache": cached,
    }
    _write(path, "lfm2", keys, layers, width, norm="token_embd_norm")


def recurrent(path: Path) -> None:
    """Write a model like Mamba-370M, with every other layer left out."""
    width, inner, state, rank, kernel = 1024, 2048, 16, 64, 4
    layer: Shapes = {
        "attn_norm.weight": (width,),
        "ssm_in.weight": (2 * inner, width),
        "ssm_conv1d.weight": (inner, kernel),
        "ssm_conv1d.bias": (inner,),
        "ssm_x.weight": (rank + 2 * state, inner),
        "ssm_dt.weight": (inner, rank),
        "ssm_dt.bias": (inner,),
        "ssm_a": (inner, state),
        "ssm_d": (inner,),
        "ssm_out.weight": (width, inner),
    }
    keys: Mapping[str, object] = {
        "embedding_length": width,
        "feed_forward_length": 0,
        "attention.head_count": 0,
        "ssm.conv_kernel": kernel,
        "ssm.inner_size": inner,
        "ssm.state_size": state,
        "ssm.time_step_rank": rank,
    }
    _write(path, "mamba", keys, [layer] * 24, width)


def windowed(path: Path) -> None:
    """Write a model like Gemma 3 270M: five of six layers see the last 512 tokens only."""
    width, inner, heads, kv_heads, head = 640, 2048, 4, 1, 256
    layer = _gated(width, inner) | _attention(width, heads * head, kv_heads * head)
    layer |= {"attn_q_norm.weight": (head,), "attn_k_norm.weight": (head,)}
    layer |= {"post_attention_norm.weight": (width,), "post_ffw_norm.weight": (width,)}
    keys: Mapping[str, object] = {
        "embedding_length": width,
        "feed_forward_length": inner,
        "attention.head_count": heads,
        "attention.head_count_kv": kv_heads,
        "attention.key_length": head,
        "attention.value_length": head,
        "attention.sliding_window": 512,
    }
    _write(path, "gemma3", keys, [layer] * 18, width)


def per_layer(path: Path) -> None:
    """Write a model like Gemma 4 E2B with 10 of 35 layers, narrower.

    More than half of it is a table with embeddings for each layer, of which a token reads a row.
    """
    width, inner, heads, of_layer, layers = 640, 1536, 4, 256, 10
    both: Shapes = {
        "attn_norm.weight": (width,),
        "post_attention_norm.weight": (width,),
        "ffn_norm.weight": (width,),
        "post_ffw_norm.weight": (width,),
        "layer_output_scale.weight": (1,),
        "inp_gate.weight": (of_layer, width),
        "proj.weight": (width, of_layer),
        "post_norm.weight": (width,),
        "ffn_gate.weight": (inner, width),
        "ffn_up.weight": (inner, width),
        "ffn_down.weight": (width, inner),
    }
    windowed, whole = (
        _attention(width, heads * head, head)
        | {"attn_q_norm.weight": (head,), "attn_k_norm.weight": (head,)}
        for head in (256, 512)
    )
    has_window = [number % 5 != 4 for number in range(layers)]
    keys: Mapping[str, object] = {
        "embedding_length": width,
        "feed_forward_length": inner,
        "attention.head_count": heads,
        "attention.head_count_kv": 1,
        "attention.key_length": 512,
        "attention.value_length": 512,
        "attention.key_length_swa": 256,
        "attention.value_length_swa": 256,
        "attention.sliding_window": 512,
        "attention.sliding_window_pattern": has_window,
        "rope.dimension_count": 512,
        "rope.dimension_count_swa": 256,
        "attention.shared_kv_layers": 5,
        "embedding_length_per_layer_input": of_layer,
    }
    tables: Shapes = {
        "per_layer_token_embd.weight": (VOCABULARY, layers * of_layer),
        "per_layer_model_proj.weight": (layers * of_layer, width),
        "per_layer_proj_norm.weight": (of_layer,),
        "rope_freqs.weight": (256,),
    }
    each = [both | (windowed if window else whole) for window in has_window]
    _write(path, "gemma4", keys, each, width, tables=tables)


_ONES = ("rope_freqs.weight", "layer_output_scale.weight")


WRITERS: Mapping[str, Callable[[Path], None]] = {
    "dense": dense,
    "experts": experts,
    "hybrid": hybrid,
    "recurrent": recurrent,
    "windowed": windowed,
    "per-layer": per_layer,
}


def _gated(width: int, inner: int) -> Shapes:
    return {
        "attn_norm.weight": (width,),
        "ffn_norm.weight": (width,),
        "ffn_gate.weight": (inner, width),
        "ffn_up.weight": (inner, width),
        "ffn_down.weight": (width, inner),
    }


def _attention(width: int, q_width: int, kv_width: int) -> Shapes:
    return {
        "attn_q.weight": (q_width, width),
        "attn_k.weight": (kv_width, width),
        "attn_v.weight": (kv_width, width),
        "attn_output.weight": (width, q_width),
    }


def _write(
    path: Path,
    architecture: str,
    keys: Mapping[str, object],
    layers: list[Shapes],
    width: int,
    *,
    norm: str = "output_norm",
    tables: Shapes | None = None,
) -> None:
    words = vocabulary(VOCABULARY)
    writer = GGUFWriter(path, architecture)
    writer.add_context_length(CONTEXT)
    writer.add_block_count(len(layers))
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(VOCABULARY)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(words.tokens)
    writer.add_token_scores(words.scores)
    writer.add_token_types(words.kinds)
    writer.add_bos_token_id(BEGIN_ID)
    writer.add_eos_token_id(END_ID)
    writer.add_unk_token_id(UNKNOWN_ID)
    for key, value in keys.items():
        if isinstance(value, list):
            writer.add_array(f"{architecture}.{key}", value)
        else:
            writer.add_uint32(f"{architecture}.{key}", int(str(value)))
    random = np.random.default_rng(1)
    shapes: Shapes = {"token_embd.weight": (VOCABULARY, width)}
    shapes |= tables or {}
    for number, layer in enumerate(layers):
        shapes |= {f"blk.{number}.{name}": shape for name, shape in layer.items()}
    shapes[f"{norm}.weight"] = (width,)
    for name, shape in shapes.items():
        if "norm" in name or name.endswith(_ONES):
            values = np.ones(shape, np.float32)
        elif name.endswith("ssm_a"):
            values = np.full(shape, -1, np.float32)
        else:
            values = random.normal(0, shape[-1] ** -0.5, shape).astype(np.float32)
        if len(shape) > 1 and shape[-1] % 32 == 0:
            packed = quantize(values, GGMLQuantizationType.Q8_0)
            writer.add_tensor(name, packed, raw_dtype=GGMLQuantizationType.Q8_0)
        else:
            writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
