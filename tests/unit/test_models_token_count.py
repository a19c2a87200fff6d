"""Tokens are counted as llama.cpp counts them."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFWriter

from armload.build.source import pinned_source
from armload.core.progress import Silent
from armload.models import token_count
from armload.models.byte_pairs import byte_letters
from armload.models.header import read_header
from armload.models.token_count import count_tokens
from armload.models.tokens import added_tokens
from armload.models.vocabulary import TokenKind
from tests.outside_data import STORIES, needs_stories


@needs_stories
@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("seven apples " * 300, 2402),
        ("1234567890 " * 60 + "   \n\n  a", 669),
        ("Gr\u00fc\u00dfe, l'\u00e9t\u00e9 2024 \u2014 \u6f22\u5b57\n\n\n  \t x " * 9, 326),
    ],
)
def test_pieces_are_merged_by_their_scores(text: str, tokens: int) -> None:
    """The numbers are those that llama-completion printed."""
    assert count_tokens(STORIES, text) == tokens


def _byte_pairs(path: Path, stated: str, merges: list[str], special: str = "") -> Path:
    writer = GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(stated)
    tokens = [*byte_letters().values(), *(pair.replace(" ", "") for pair in merges)]
    kinds = [TokenKind.NORMAL] * len(tokens)
    writer.add_token_list([*tokens, special] if special else tokens)
    writer.add_token_types([*kinds, TokenKind.CONTROL] if special else kinds)
    writer.add_token_merges(merges)
    writer.add_tensor("token_embd.weight", np.ones((8, 32), np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_merges_do_not_cross_words_and_the_first_of_them_goes_first(tmp_path: Path) -> None:
    space = byte_letters()[0x20]
    path = _byte_pairs(tmp_path / "m.gguf", "qwen2", ["1 2", "a b", f"{space} a", "b c", "ab c"])
    assert count_tokens(path, "abc") == 1
    assert count_tokens(path, "abbc") == 2, "ab, bc"
    assert count_tokens(path, " abc") == 2, "the space is merged with ab's a no more"
    assert count_tokens(path, "12") == 2, "each digit is a word"
    assert count_tokens(path, "\u00fc") == 2, "two bytes"


def test_what_is_not_known_is_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = _byte_pairs(tmp_path / "other.gguf", "of-tomorrow", ["a b"])
    assert count_tokens(other, "ab") is None
    special = _byte_pairs(tmp_path / "special.gguf", "gpt-2", ["a b"], special="<|end|>")
    assert count_tokens(special, "ab") == 1
    assert count_tokens(special, "ab<|end|>") is None
    monkeypatch.setattr(token_count, "_MOST_LETTERS", 1)
    assert count_tokens(special, "abab") is None


@pytest.mark.exhaustive(covers=["armload/models/token_count.py"])
@pytest.mark.parametrize("name", ["gpt-2", "llama-bpe", "llama-spm", "qwen2", "qwen35", "refact"])
def test_the_source_s_own_texts_have_as_many_tokens_as_it_says(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    vocabulary = pinned_source().provide(Silent()) / f"models/ggml-vocab-{name}.gguf"
    monkeypatch.setattr(token_count, "read_header", lru_cache(read_header))
    texts, ids = (Path(f"{vocabulary}.{each}").read_bytes().decode() for each in ("inp", "out"))
    added = added_tokens(read_header(vocabulary))
    for text, line in zip(texts.split("\n__ggml_vocab_test__\n"), ids.split("\n"), strict=False):
        assert count_tokens(vocabulary, text) == (len(line.split()) + added), text
