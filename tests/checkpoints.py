"""Small Hugging Face checkpoints, with the weights and the vocabulary of a model's GGUF file."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize
from numpy.typing import NDArray

Weights = NDArray[np.float32]

ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM"}
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

    A Llama and a Qwen2 without biases compute the same, so the text of both is the model's.

    Args:
        model: a GGUF file with a vocabulary of sentence pieces.
        folder: of the checkpoint; it is made.
        kind: ``llama`` or ``qwen2``.
        shards: files that the weights are spread over.
    """
    folder.mkdir(parents=True)
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
        if kind == "qwen2" and part in {"attn_q", "attn_k", "attn_v"}:
            weights[f"{name}.bias"] = np.zeros(len(values), np.float32)
    _write_weights(folder, weights, shards)
    config = {
        "architectures": [ARCHITECTURES[kind]],
        "model_type": kind,
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
    _write_tokenizer(folder, fields)
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


def _write_tokenizer(folder: Path, fields: Mapping[str, Any]) -> None:
    settings = {
        "tokenizer_class": "LlamaTokenizer",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "add_bos_token": True,
        "add_eos_token": False,
        "add_prefix_space": False,
        "legacy": False,
        "chat_template": fields["tokenizer.chat_template"],
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    tokens = fields["tokenizer.ggml.tokens"]
    scores, kinds = fields["tokenizer.ggml.scores"], fields["tokenizer.ggml.token_type"]
    pieces = b"".join(
        _message(1, _message(1, token.encode()) + _float(2, score) + _number(3, kind))
        for token, score, kind in zip(tokens, scores, kinds, strict=True)
    )
    byte_pairs, byte_fallback = _number(3, 2), _number(35, 1)
    ids = _number(40, 0) + _number(41, 1) + _number(42, 2)
    trainer = _message(2, byte_pairs + _number(4, len(tokens)) + byte_fallback + ids)
    no_dummy_prefix, spaces_kept, spaces_marked = _number(3, 0), _number(4, 0), _number(5, 1)
    normaliser = _message(
        3, _message(1, b"identity") + no_dummy_prefix + spaces_kept + spaces_marked
    )
    (folder / "tokenizer.model").write_bytes(pieces + trainer + normaliser)


# Fields of sentencepiece_model.proto, as protocol buffers are encoded.


def _varint(number: int) -> bytes:
    content = b""
    while number > 0x7F:
        content += bytes([number & 0x7F | 0x80])
        number >>= 7
    return content + bytes([number])


def _message(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _float(field: int, value: float) -> bytes:
    return _varint(field << 3 | 5) + struct.pack("<f", value)
