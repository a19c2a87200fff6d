"""A draft model is refused where the same number means another token."""

from __future__ import annotations

from pathlib import Path

import pytest
from gguf import GGUFWriter

from armload.core.errors import UsageError
from armload.models.model import Model
from armload.models.tokens import check_draft
from tests.unit.samples import model

TOKENS = [f"token {number}" for number in range(300)]


def written(path: Path, tokens: list[str], *, kind: str = "llama") -> Model:
    writer = GGUFWriter(path, "llama")
    writer.add_tokenizer_model(kind)
    writer.add_token_list(tokens)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model(path)


def test_the_same_vocabulary_is_accepted_and_so_are_added_tokens(tmp_path: Path) -> None:
    one = written(tmp_path / "model.gguf", TOKENS)
    check_draft(written(tmp_path / "same.gguf", TOKENS), one)
    check_draft(written(tmp_path / "more.gguf", [*TOKENS, "added"]), one)
    check_draft(written(tmp_path / "control.gguf", ["<pad>", *TOKENS[1:]]), one)


@pytest.mark.parametrize(
    ("tokens", "kind", "said"),
    [
        ([*TOKENS[:17], "other", *TOKENS[18:]], "llama", "token 17 of their vocabularies"),
        (TOKENS[:100], "llama", "vocabularies have 100 and 300 tokens"),
        (TOKENS, "gpt2", "their kind of tokenizer differs .gpt2 and llama."),
    ],
)
def test_another_vocabulary_is_refused(
    tokens: list[str], kind: str, said: str, tmp_path: Path
) -> None:
    one = written(tmp_path / "model.gguf", TOKENS)
    draft = written(tmp_path / "draft.gguf", tokens, kind=kind)
    with pytest.raises(UsageError, match=said) as caught:
        check_draft(draft, one)
    assert "--speculate ngram" in (caught.value.remedy or "")
