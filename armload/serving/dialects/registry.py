"""Every dialect by its name, and the two that are a single server's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from armload.core.errors import UsageError
from armload.engines.plan import Pooling
from armload.serving.dialects.dialect import (
    CompletionRequest,
    Dialect,
    Event,
    cached_tokens,
    error_in,
    length_words,
    llama_timings,
    prompt_alone,
    text_alone,
    text_of,
)
from armload.serving.dialects.openai import OpenAi, OpenAiChat, OpenAiEmbeddings, Rerank
from armload.serving.front.llm_serving import FAILURES


class LlamaServer:
    """``POST /completion``: with the server's count of tokens in every event."""

    name = "llama-server"
    path = "/completion"
    is_streamed = True

    def body(self, request: CompletionRequest, model: str) -> dict[str, Any]:
        """Return the body of a greedy request; the server decides what it may reuse."""
        del model  # the server has but one
        return {
            "prompt": prompt_alone(request, self.name),
            "n_predict": request.max_tokens,
            "temperature": 0,
            "stream": True,
            **({} if request.may_reuse else {"cache_prompt": False}),
            **length_words(request),
            **({} if request.json_schema is None else {"json_schema": request.json_schema}),
            **request.extra_body,
        }

    def event(self, content: dict[str, Any]) -> Event:
        if error := error_in(content):
            return Event(error=error)
        is_last = bool(content["stop"])
        tokens = content.get("tokens_predicted")
        return Event(
            text=text_of(content["content"]),
            tokens=tokens,
            prompt_tokens=content.get("tokens_evaluated") if is_last else None,
            generated_tokens=tokens if is_last else None,
            cached_tokens=cached_tokens(content) if is_last else None,
            finish_reason=str(content.get("stop_type", "")) if is_last else "",
            is_truncated=is_last and bool(content.get("truncated")),
            timings=llama_timings(content) if is_last else None,
        )


class LlmServing:
    """MindSpore's server: one event for each token, and the whole text at the end.

    Its stream is bare JSON lines. ``data`` of an event is a list of one element, or the element.
    """

    name = "llm-serving"
    path = "/models/llama2/generate_stream"
    is_streamed = True

    def body(self, request: CompletionRequest, model: str) -> dict[str, Any]:
        """Return the body as that project's test client sends it, booleans as text."""
        del model  # its path names one
        return {
            "inputs": text_alone(request, self.name),
            "parameters": {
                "max_new_tokens": request.max_tokens,
                "do_sample": "False",
                "return_full_text": "True",
                **request.extra_body,
            },
        }

    def event(self, content: dict[str, Any]) -> Event:
        """Read one event; the last one repeats the answer and counts its tokens."""
        data = content["data"]
        (item,) = data if isinstance(data, list) else [data]
        if "generated_tokens" not in item:
            return Event(text=text_of(item["generated_text"]))
        if item.get("finish_reason") in FAILURES:  # with status 200, and the reason as the text
            return Event(error=f"{item['finish_reason']}: {item['generated_text']}")
        return Event(
            text=text_of(item["generated_text"]),
            is_whole=True,
            generated_tokens=item["generated_tokens"],
            finish_reason=str(item.get("finish_reason") or ""),
        )


DIALECTS: tuple[Dialect, ...] = (
    OpenAi(),
    OpenAiChat(),
    OpenAiEmbeddings(),
    Rerank(),
    LlamaServer(),
    LlmServing(),
)

POOLED: Mapping[str, Pooling] = {OpenAiEmbeddings.name: "model", Rerank.name: "rank"}
"""Dialects whose answers have no tokens, and how a model is served for each."""


def dialect_named(name: str) -> Dialect:
    for dialect in DIALECTS:
        if dialect.name == name:
            return dialect
    names = ", ".join(dialect.name for dialect in DIALECTS)
    raise UsageError(f"--dialect {name!a}: there is no such dialect.", f"The dialects are {names}.")
