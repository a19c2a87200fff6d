"""The protocol of llm-serving, MindSpore's server: ``POST /models/llama2/generate_stream``.

Its stream is bare JSON lines. ``data`` of an event is a list of one element, or the element.
"""

from __future__ import annotations

from typing import Any

from armload.serving.dialects.dialect import CompletionRequest, Event, text_alone, text_of
from armload.serving.front.llm_serving import FAILURES


class LlmServing:
    """Streams one event for each token, and the whole text at the end."""

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
