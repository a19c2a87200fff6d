"""llama-server's own protocol: ``POST /completion``."""

from __future__ import annotations

from typing import Any

from armload.serving.dialects.dialect import (
    CompletionRequest,
    Event,
    cached_tokens,
    error_in,
    length_words,
    llama_timings,
    prompt_alone,
    text_of,
)


class LlamaServer:
    """Streams with the server's count of tokens in every event."""

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
