"""Small Hugging Face checkpoints, with the weights and the vocabulary of a model's GGUF file."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize
from numpy.typing import NDArray

from tests.tokenizers import write_byte_pairs, write_sentence_pieces

Weights = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """What a checkpoint is like beside its weights.

    Attributes:
        bias: standard deviation of the biases of queries, keys and values; none has none.
    """

    model_type: Literal["llama", "qwen2"]
    architecture: str
    tokenizer: Literal["sentence pieces", "llama-bpe", "qwen2"]
    bias: float | None = None


KINDS = {
    "llama": Kind(model_type="llama", architecture="LlamaForCausalLM", tokenizer="sentence pieces"),
    "llama-3": Kind(model_type="llama", architecture="LlamaForCausalLM", tokenizer="llama-bpe"),
    "qwen2": Kind(model_type="qwen2", architecture="Qwen2ForCausalLM", tokenizer="qwen2", bias=1.0),
}
_OUTER = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_INNER = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def checkpoint_of(model: Path, folder: Path, kind: str = "llama", *, shards: int = 1) -> Path:
    """Write a model of llama architecture as a checkpoint, and return its folder.

    A Llama answers as the model does, whatever its tokenizer. A Qwen2 has biases besides, so that
    its answers are its own.

    Args:
        model: a GGUF file with a vocabulary of sentence pieces.
        folder: of the checkpoint; it is made.
        kind: of ``KINDS``.
        shards: files that the weights are spread over.
    """
    folder.mkdir(parents=True)
    like = KINDS[kind]
    random = np.random.default_rng(0)
    reader = GGUFReader(model)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    heads = fields["llama.attention.head_count"]
    kv_heads = fields["llama.attention.head_count_kv"]
    weights: dict[str, Weights] = {}
    for tensor in reader.tensors:
        values = np.asarray(dequantize(tensor.data, tensor.tensor_type), np.float32)
        block, *rest = tensor.name.split(".")
        if block != "blk":
            weights[f"{_OUTER[block]}.weight"] = values
            continue
        part = rest[1]
        if part in {"attn_q", "attn_k"}:
            values = _rotated_in_halves(values, heads if part == "attn_q" else kv_heads)
        name = f"model.layers.{rest[0]}.{_INNER[part]}"
        weights[f"{name}.weight"] = values
        if like.bias is not None and part in {"attn_q", "attn_k", "attn_v"}:
            weights[f"{name}.bias"] = random.normal(0, like.bias, len(values)).astype(np.float32)
    _write_weights(folder, weights, shards)
    config = {
        "architectures": [like.architecture],
        "model_type": like.model_type,
        "hidden_size": fields["llama.embedding_length"],
        "intermediate_size": fields["llama.feed_forward_length"],
        "num_hidden_layers": fields["llama.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "vocab_size": len(fields["tokenizer.ggml.tokens"]),
        "max_position_embeddings": fields["llama.context_length"],
        "rms_norm_eps": fields["llama.attention.layer_norm_rms_epsilon"],
        "rope_theta": 10000.0,
        "tie_word_embeddings": "lm_head.weight" not in weights,
        "hidden_act": "silu",
        "bos_token_id": 1,
        "eos_token_id": 2,
        "torch_dtype": "float32",
    }
    (folder / "config.json").write_text(json.dumps(config))
    if like.tokenizer == "sentence pieces":
        write_sentence_pieces(folder, fields)
    else:
        write_byte_pairs(folder, fields, like.tokenizer)
    return folder


def _rotated_in_halves(values: Weights, heads: int) -> Weights:
    """Undo llama.cpp's order of rows, which rotates neighbours instead of halves of a head."""
    pairs = values.reshape(heads, len(values) // heads // 2, 2, -1)
    return pairs.swapaxes(1, 2).reshape(values.shape)


def _write_weights(folder: Path, weights: Mapping[str, Weights], shards: int) -> None:
    names = sorted(weights)
    if shards == 1:
        (folder / "model.safetensors").write_bytes(safetensors(weights))
        return
    places: dict[str, str] = {}
    for number in range(shards):
        file = f"model-{number + 1:05}-of-{shards:05}.safetensors"
        own = names[number::shards]
        places |= dict.fromkeys(own, file)
        (folder / file).write_bytes(safetensors({name: weights[name] for name in own}))
    index = {"metadata": {}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def safetensors(weights: Mapping[str, Weights]) -> bytes:
    """Return the content of a safetensors file."""
    header, end = {}, 0
    for name, values in weights.items():
        offsets = [end, end := end + values.nbytes]
        header[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": offsets}
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    content = b"".join(values.tobytes() for values in weights.values())
    return struct.pack("<Q", len(text)) + text + content
