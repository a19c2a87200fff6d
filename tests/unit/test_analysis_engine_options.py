"""Options that a command of llama.cpp sets, in both spellings, the last one counting."""

from __future__ import annotations

import pytest

from armload.analysis.engine_options import context_tokens, kv_type, other_words


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("llama-completion", "-c", "512"), 512),
        (("llama-completion", "--ctx-size=512"), 512),
        (("-c", "512", "--ctx-size", "1024"), 1024),
        (("-c", "many"), None),
        (("-n", "8"), None),
    ],
)
def test_the_context_is_read_in_every_spelling(
    words: tuple[str, ...], expected: int | None
) -> None:
    assert context_tokens(words) == expected


def test_keys_and_values_have_types_of_their_own() -> None:
    assert kv_type(("--cache-type-k=q8_0", "-b", "64")) == "q8_0/f16"
    assert kv_type(("-ctk", "q8_0", "-ctv", "q4_0")) == "q8_0/q4_0"


def test_what_a_comparison_shows_by_itself_is_left_out_of_the_other_words() -> None:
    words = ("-b", "64", "-c", "512", "--cache-type-k=q8_0", "--no-repack", "--mlock")
    assert other_words(words) == ["-b", "64", "--mlock"]
