"""Requests to rank texts, and the answers."""

from __future__ import annotations

from typing import Any

import pytest

from armload.serving.dialects.dialect import CompletionRequest
from armload.serving.dialects.openai import Rerank


@pytest.mark.parametrize(
    ("prompt", "query", "documents"),
    [
        ("who\none text\nanother", "who", ["one text", "another"]),
        ("one two three four five six seven eight", "one two", ["three four five six seven eight"]),
        ("word", "word", ["word"]),
    ],
)
def test_the_first_line_is_the_query(prompt: str, query: str, documents: list[str]) -> None:
    body = Rerank().body(CompletionRequest(prompt=prompt, max_tokens=1), "m")
    assert (body["query"], body["documents"]) == (query, documents)


def test_the_scores_and_the_tokens_are_counted() -> None:
    results = [{"index": 1, "relevance_score": 0.5}, {"index": 0, "relevance_score": -2.0}]
    event = Rerank().event({"results": results, "usage": {"prompt_tokens": 12}})
    assert (event.dimensions, event.prompt_tokens) == (2, 12)


@pytest.mark.parametrize(
    "answer", [{"results": []}, {"results": [{"relevance_score": "high"}]}, {"data": []}]
)
def test_another_answer_is_refused(answer: dict[str, Any]) -> None:
    with pytest.raises((LookupError, ValueError)):
        Rerank().event(answer)
