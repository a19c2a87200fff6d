"""Context memory by llama.cpp's rules, for architectures that its own test does not write."""

from __future__ import annotations

from pathlib import Path

import pytest

from armload.core.errors import DataError
from armload.models.context_memory import ContextMemory, context_memory
from armload.models.gguf_values import Array, Scalar
from armload.models.header import Header, Tensor
from armload.models.metadata import Metadata


def memory(architecture: str, layers: int, numbers: dict[str, Scalar | Array]) -> ContextMemory:
    keys: dict[str, Scalar | Array] = {
        "block_count": layers,
        "embedding_length": 512,
        "attention.head_count": 8,
        **numbers,
    }
    names = ["token_embd.weight", *(f"blk.{layer}.attn_norm.weight" for layer in range(layers))]
    header = Header(
        version=3,
        metadata={
            "general.architecture": architecture,
            **{f"{architecture}.{key}": value for key, value in keys.items()},
        },
        tensors=tuple(
            Tensor(name=name, shape=(512,), type_name="F32", size_bytes=2048, offset_bytes=0)
            for name in names
        ),
        file_bytes=0,
        metadata_bytes=0,
        alignment_bytes=32,
        end_bytes=0,
    )
    return context_memory(Metadata(Path("m.gguf"), header))


def test_gemma_3n_shares_the_cache_of_its_first_twenty_layers() -> None:
    found = memory("gemma3n", 30, {"attention.sliding_window": 512})
    of_a_layer = 8 * 64
    assert found.key_values == 4 * of_a_layer
    assert found.window_key_values == 16 * of_a_layer
    assert found.window_layers == 24


def test_gemma_4_has_other_heads_in_layers_with_a_window() -> None:
    pattern = Array(length=6, items=(True, True, False, True, True, False))
    found = memory(
        "gemma4",
        6,
        {
            "attention.sliding_window": 512,
            "attention.sliding_window_pattern": pattern,
            "attention.shared_kv_layers": 2,
            "attention.head_count_kv": 1,
            "attention.key_length": 128,
            "attention.value_length": 128,
            "attention.key_length_swa": 64,
            "attention.value_length_swa": 64,
        },
    )
    assert (found.key_values, found.window_key_values) == (128, 3 * 64)


@pytest.mark.parametrize("every", [2, 4])
def test_one_layer_of_several_of_qwen3_5_has_a_cache_and_the_others_a_state(every: int) -> None:
    found = memory(
        "qwen35",
        8,
        {
            "full_attention_interval": every,
            "attention.head_count_kv": 2,
            "ssm.conv_kernel": 4,
            "ssm.inner_size": 512,
            "ssm.state_size": 16,
            "ssm.group_count": 2,
        },
    )
    recurrent = 8 - 8 // every
    assert found.key_values == 8 // every * 2 * 64
    assert found.recurrent_layers == recurrent
    assert found.state_bytes == recurrent * 4 * (3 * (512 + 2 * 2 * 16) + 16 * 512)


def test_rwkv_has_a_state_and_no_cache() -> None:
    found = memory("rwkv7", 3, {"attention.head_count": 0, "wkv.head_size": 64})
    assert found.bytes_per_token == 0
    assert found.size_bytes(512) == found.size_bytes(65_536) == 3 * 4 * 512 * (2 + 64)


def test_models_that_do_not_go_from_left_to_right_have_no_cache() -> None:
    assert memory("llada", 3, {}).size_bytes(4096) == memory("bert", 3, {}).size_bytes(4096) == 0


def test_a_window_that_sequences_share_has_room_for_each() -> None:
    found = ContextMemory(window_tokens=512, window_key_values=1, window_layers=1)
    assert found.size_bytes(4096, sequences=4) == 4 * (512 + 512) * 2
    assert found.size_bytes(4096, sequences=4, is_shared=True) == (4 * 512 + 512) * 2
    assert found.size_bytes(100) == 256 * 2


def test_a_list_that_is_shorter_than_the_layers_is_refused() -> None:
    short = Array(length=1, items=(2,))
    with pytest.raises(DataError, match="no usable value for layer 1"):
        memory("llama", 3, {"attention.head_count_kv": short})


def test_keys_and_values_have_types_of_their_own() -> None:
    latent = ContextMemory(key_values=64)
    assert latent.size_bytes(256, kv_shares=(0.5, 0.25)) == 256 * 64 * 2 * 0.5
    unequal = ContextMemory(key_values=96, value_values=64)
    assert unequal.size_bytes(256, kv_shares=(0.5, 0.25)) == 256 * 2 * (96 * 0.5 + 64 * 0.25)
