"""What the engine touches beside weights and cache, estimated where it cannot be asked."""

from __future__ import annotations

import pytest

from armload.engines.model_program import working_bytes
from armload.models.outline import outline_called, outlined

BATCH = 512

# Touched compute buffers and scratch memory of the threads as llama.cpp b11312 says them of these
# models for this batch, in MB: by context, and by whether attention is fused.
TOUCHED = {
    ("llama-3.1-8b", 2048, True): 133.1,
    ("llama-3.1-8b", 8192, True): 139.4,
    ("llama-3.1-8b", 2048, False): 251.7,
    ("llama-3.1-8b", 8192, False): 868.2,
    ("qwen3-30b-a3b", 2048, True): 103.2,
    ("qwen3-30b-a3b", 8192, True): 109.5,
    ("qwen3-30b-a3b", 8192, False): 853.5,
    ("gemma-2-2b", 2048, True): 85.6,
    ("gemma-2-2b", 8192, True): 94.5,
    ("gemma-2-2b", 8192, False): 258.5,
    ("olmoe-1b-7b", 2048, True): 77.1,
    ("olmoe-1b-7b", 2048, False): 134.3,
    ("falcon-h1-0.5b", 8192, True): 36.1,
    ("falcon-h1-0.5b", 8192, False): 237.5,
    ("lfm2-350m", 8192, True): 46.7,
    ("lfm2-350m", 8192, False): 432.0,
    ("gpt-oss-20b", 8192, True): 112.9,
    ("gpt-oss-20b", 8192, False): 1667.7,
    ("phi-4-mini", 8192, True): 83.4,
    ("phi-4-mini", 8192, False): 643.8,
    ("lfm2-8b-a1b", 8192, True): 71.0,
    ("lfm2-8b-a1b", 8192, False): 845.1,
}


@pytest.mark.parametrize(("name", "context", "is_fused"), TOUCHED)
def test_the_estimate_is_near_what_llama_cpp_says(
    name: str,
    context: int,
    is_fused: bool,  # noqa: FBT001
) -> None:
    model, _ = outlined(outline_called(name), "Q4_K_M")
    without = working_bytes(model, 0)
    estimate = working_bytes(model, BATCH, context, is_fused=is_fused) - without
    ratio = estimate / 1e6 / TOUCHED[name, context, is_fused]
    assert 0.88 <= ratio <= 1.6


def test_a_larger_context_and_plain_attention_take_more() -> None:
    model, _ = outlined(outline_called("qwen3-0.6b"), "Q8_0")
    small, large = (working_bytes(model, BATCH, each) for each in (2048, 32768))
    assert large - small == 2 * BATCH * (32768 - 2048)  # the mask, in 16 bits
    assert working_bytes(model, BATCH, 2048, is_fused=False) > 2 * small
