"""The metadata of a made model: the keys that llama.cpp's converter writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from armload.models.shape import BytePairs, SentencePieces, Shape
from armload.models.vocabulary import BEGIN_ID, END_ID, UNKNOWN_ID, Vocabulary

if TYPE_CHECKING:
    from gguf import GGUFWriter


def describe(
    writer: GGUFWriter, shape: Shape, words: Vocabulary, file_type: str, *, name: str = ""
) -> None:
    """Give the writer all metadata.

    Args:
        file_type: such as ``Q4_K_M``.
        name: of a model whose weights are not random.
    """
    from gguf import LlamaFileType

    of = f"{shape.description}, " if shape.description else ""
    kind = "ALL_F32" if file_type == "F32" else f"MOSTLY_{file_type}"
    writer.add_name(name or f"{of}random weights")
    writer.add_file_type(LlamaFileType[kind])
    if file_type != "F32":
        writer.add_quantization_version(2)
    is_llama = shape.architecture == "llama"
    if is_llama:
        writer.add_vocab_size(shape.vocabulary)
    writer.add_context_length(shape.context_length)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.feed_forward)
    if shape.experts:
        writer.add_expert_count(shape.experts)
        writer.add_expert_used_count(shape.experts_used)
    if shape.expert_feed_forward is not None:
        writer.add_expert_feed_forward_length(shape.expert_feed_forward)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    if shape.head_width is not None:
        writer.add_key_length(shape.head_width)
        writer.add_value_length(shape.head_width)
    if is_llama:
        writer.add_rope_dimension_count(shape.head)
    if shape.rope_base is not None:
        writer.add_rope_freq_base(shape.rope_base)
    writer.add_layer_norm_rms_eps(shape.norm_epsilon)
    if isinstance(shape.tokenizer, BytePairs):
        _describe_byte_pairs(writer, shape.tokenizer, words)
    else:
        _describe_sentence_pieces(writer, shape.tokenizer, words)


def _describe_sentence_pieces(
    writer: GGUFWriter, tokenizer: SentencePieces, words: Vocabulary
) -> None:
    writer.add_tokenizer_model("llama")
    writer.add_token_list(words.tokens)
    writer.add_token_scores(words.scores)
    writer.add_token_types(words.kinds)
    writer.add_bos_token_id(BEGIN_ID)
    writer.add_eos_token_id(END_ID)
    writer.add_unk_token_id(UNKNOWN_ID)
    writer.add_bool("tokenizer.ggml.add_bos_token", val=True)
    if tokenizer.add_end is not None:
        writer.add_bool("tokenizer.ggml.add_eos_token", val=tokenizer.add_end)


def _describe_byte_pairs(writer: GGUFWriter, tokenizer: BytePairs, words: Vocabulary) -> None:
    ids = {name: tokenizer.text_tokens + number for number, name in enumerate(tokenizer.special)}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(tokenizer.pre)
    writer.add_token_list(words.tokens)
    writer.add_token_types(words.kinds)
    writer.add_token_merges([f"{left} {right}" for left, right in words.merges])
    writer.add_bos_token_id(ids[tokenizer.begin])
    writer.add_eos_token_id(ids[tokenizer.end])
    if tokenizer.padding is not None:
        writer.add_pad_token_id(ids[tokenizer.padding])
    if tokenizer.add_begin is not None:
        writer.add_bool("tokenizer.ggml.add_bos_token", val=tokenizer.add_begin)
