"""A prompt of a length in tokens is common words that the model has whole."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFWriter

from armload.core.errors import UsageError
from armload.models.tokens import prompt_of


def _written(
    path: Path,
    kind: str,
    pieces: list[str],
    *,
    begins: bool | None = None,
    puts_a_space_first: bool | None = None,
) -> Path:
    writer = GGUFWriter(path, "llama")
    writer.add_tokenizer_model(kind)
    writer.add_token_list(pieces)
    if begins is not None:
        writer.add_add_bos_token(begins)
    if puts_a_space_first is not None:
        writer.add_add_space_prefix(puts_a_space_first)
    writer.add_tensor("token_embd.weight", np.ones((8, 32), np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


WORDS = ("the", "and", "was", "to")


def test_sentencepiece_reads_the_first_word_with_a_space_before_it(tmp_path: Path) -> None:
    path = _written(tmp_path / "m.gguf", "llama", ["<s>", *(f"\u2581{word}" for word in WORDS)])
    words = prompt_of(path, 9)
    assert words == words.strip()
    assert len(words.split()) == 8, "one is the token that begins a text"
    assert set(words.split()) <= set(WORDS)
    assert words == prompt_of(path, 9)


def test_sentencepiece_that_puts_no_space_first_is_given_it(tmp_path: Path) -> None:
    pieces = ["<s>", *(f"\u2581{word}" for word in WORDS)]
    path = _written(tmp_path / "m.gguf", "llama", pieces, puts_a_space_first=False)
    words = prompt_of(path, 9)
    assert words.startswith(" ")
    assert len(words.split()) == 8


def test_byte_pairs_need_the_space_and_begin_with_a_token_only_where_the_model_says_so(
    tmp_path: Path,
) -> None:
    pieces = [f"\u0120{word}" for word in WORDS]
    plain = prompt_of(_written(tmp_path / "m.gguf", "gpt2", pieces), 9)
    assert plain.startswith(" ")
    assert len(plain.split()) == 9
    begins = prompt_of(_written(tmp_path / "n.gguf", "gpt2", pieces, begins=True), 9)
    assert len(begins.split()) == 8


@pytest.mark.parametrize(("kind", "pieces"), [("llama", ["\u2581the"]), ("rwkv", ["the", "and"])])
def test_a_vocabulary_without_common_words_asks_for_a_text(
    kind: str, pieces: list[str], tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="--prompt") as refused:
        prompt_of(_written(tmp_path / "m.gguf", kind, pieces), 9)
    assert "common English words" in refused.value.message
