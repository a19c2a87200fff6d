"""Small encoders with random weights, of the kind that people embed texts with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from gguf import GGUFWriter

from armload.models.vocabulary import english_words

WIDTH, CONTEXT, LAYERS, INNER = 64, 256, 2, 128
RANK = 4
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
WORDS = (
    *dict.fromkeys(f"\u2581{each}" for each in ("cat", "sat", "mat", *english_words()[:60])),
    *("s", "ing"),
)


def write_bert(path: Path, *, pooling: int = 1, seed: int = 1, context: int = CONTEXT) -> Path:
    """Write a BERT whose file says how tokens are pooled (1: mean, 2: the first, 4: to a score)."""
    random = np.random.default_rng(seed)
    writer = GGUFWriter(path, "bert")
    writer.add_context_length(context)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(4)
    writer.add_layer_norm_eps(1e-12)
    writer.add_causal_attention(value=False)
    writer.add_uint32("bert.pooling_type", pooling)
    tokens = (*SPECIAL, *WORDS)
    writer.add_tokenizer_model("bert")
    writer.add_token_list(tokens)
    writer.add_token_types([3] * len(SPECIAL) + [1] * len(WORDS))
    writer.add_token_type_count(2)
    for role, number in {"padding": 0, "unknown": 1, "cls": 2, "seperator": 3, "mask": 4}.items():
        writer.add_uint32(f"tokenizer.ggml.{role}_token_id", number)
    writer.add_uint32("tokenizer.ggml.bos_token_id", 2)

    def add(name: str, *shape: int) -> None:
        is_norm = name.endswith("_norm.weight")
        values = np.ones(shape) if is_norm else random.normal(0, 0.2, shape)
        writer.add_tensor(name, values.astype(np.float32))

    add("token_embd.weight", len(tokens), WIDTH)
    add("token_types.weight", 2, WIDTH)
    add("position_embd.weight", context, WIDTH)
    for suffix in ("weight", "bias"):
        add(f"token_embd_norm.{suffix}", WIDTH)
    if pooling == RANK:
        for name, rows in (("cls", WIDTH), ("cls.output", 1)):
            add(f"{name}.weight", rows, WIDTH)
            add(f"{name}.bias", rows)
    for layer in range(LAYERS):
        for role, rows, columns in (
            *((f"attn_{each}", WIDTH, WIDTH) for each in ("q", "k", "v", "output")),
            ("ffn_up", INNER, WIDTH),
            ("ffn_down", WIDTH, INNER),
        ):
            add(f"blk.{layer}.{role}.weight", rows, columns)
            add(f"blk.{layer}.{role}.bias", rows)
        for role in ("attn_output_norm", "layer_output_norm"):
            for suffix in ("weight", "bias"):
                add(f"blk.{layer}.{role}.{suffix}", WIDTH)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
