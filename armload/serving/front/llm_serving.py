"""The protocol of llm-serving, MindSpore's server, in terms of llama-server's.

A stream is JSON lines without ``data:``, whose ``data`` is a list of one element; a later version
of that server sends the element itself. ``return_protocol`` other than ``sse`` gives the element
alone, behind ``data:``. ``GET`` of its state gives Server-Sent Events.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from armload.core.values import Value

DataForm = Literal["list", "object"]
"""Of ``data`` in a stream's events: as the original server sends it, or as its later version."""

PROMPT_EMPTY = "prompt_token_ids_empty"
PROMPT_TOO_LONG = "prompt_out_of_range"
PREDICT_FAILED = "predict_failed"
FAILURES = (PROMPT_EMPTY, PROMPT_TOO_LONG, PREDICT_FAILED)
"""Values of ``finish_reason`` with which that server reports a failure in an answer."""

_MOST, _LARGEST_SEED = 2**31 - 1, 2**32 - 1
"""llama-server reads numbers of 32 bits."""

_EOS, _LENGTH = "eos", "length"


class Parameters(BaseModel):
    """What a request may set; booleans may be texts such as ``"False"``. Others are ignored.

    The defaults are that server's.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    do_sample: bool | None = None
    max_new_tokens: int | None = Field(default=None, ge=1, le=_MOST)
    repetition_penalty: float | None = None
    return_full_text: bool | None = None
    return_protocol: str | None = None
    seed: int | None = Field(default=None, ge=-1, le=_LARGEST_SEED)
    stop: list[str] | None = None
    temperature: float | None = None
    top_k: int | None = Field(default=None, ge=-_MOST, le=_MOST)
    top_p: float | None = None


class FrontRequest(BaseModel):
    """The body of a request; null stands for a default, as that server takes it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    inputs: str
    parameters: Parameters = Parameters()
    stream: bool = False

    @field_validator("parameters", "stream", mode="before")
    @classmethod
    def _default_for_null(cls, value: object, info: ValidationInfo) -> object:
        return cls.model_fields[info.field_name or ""].default if value is None else value

    def for_llama_server(self) -> dict[str, Any]:
        """Return the body of llama-server's ``POST /completion``."""
        asked = self.parameters
        body: dict[str, Any] = {
            "prompt": self.inputs,
            "n_predict": asked.max_new_tokens or 300,
            "stream": True,
            "return_tokens": True,
            "cache_prompt": False,
            "temperature": 0.0,
            "repeat_penalty": asked.repetition_penalty or 1.0,
            "stop": asked.stop or [],
        }
        if asked.do_sample:
            body |= {
                "temperature": 1.0 if asked.temperature is None else asked.temperature,
                "top_k": 3 if asked.top_k is None else asked.top_k,
                "top_p": 1.0 if asked.top_p is None else asked.top_p,
                "seed": asked.seed or 0,
            }
        return body


class FrontedModel(Value):
    """What ``/serving/get_serverd_model_info`` says of a model.

    Attributes:
        name, quantisation: of the model.
        slots, context_tokens: of the service; each slot has that much context.
    """

    name: str
    quantisation: str
    slots: int
    context_tokens: int

    def info(self, *, requests: int) -> dict[str, Any]:
        """Return it in that server's keys, some of which hold what their names do not say."""
        return {
            "docker_label": "",
            "max_batch_total_tokens": self.slots * self.context_tokens,
            "max_concurrent_requests": requests,
            "max_input_length": self.context_tokens,
            "max_total_tokens": self.slots,
            "model_device_type": "CPU",
            "model_dtype": self.quantisation,
            "model_id": self.name,
            "model_pipeline_tag": "text-generation",
            "version": "2.3",
        }


@dataclass(kw_only=True)
class FrontAnswer:
    """What has been generated of one answer.

    ``logprob`` is 0.0 throughout: computing it would sort the vocabulary for every token.

    Attributes:
        form: of the events.
    """

    request: FrontRequest
    form: DataForm
    _tokens: list[dict[str, Any]] = field(default_factory=list)
    _finish_reason: str = ""
    _count: int = 0

    def take(self, event: dict[str, Any]) -> Iterator[bytes]:
        """Take an event of llama-server's stream, and yield the lines that it becomes."""
        if event.get("stop"):
            self._finish_reason = _EOS if event.get("stop_type") == "eos" else _LENGTH
            self._count = int(event.get("tokens_predicted", len(self._tokens)))
        if event.get("content"):
            yield self._add(next(reversed(event.get("tokens") or [0])), event["content"])

    def fail(self, reason: str, message: str) -> Iterator[bytes]:
        """End with a failure, which that server reports as an answer."""
        self._finish_reason = reason
        yield self._add(0, message)

    def last(self) -> Iterator[bytes]:
        """Yield the last line of a stream, if one was asked for."""
        if self.request.parameters.return_full_text:
            # The order of the keys is that server's.
            content = self.whole()
            yield self._line({"details": content.pop("details"), **content})

    def whole(self) -> dict[str, Any]:
        first = self._tokens[:1]
        return {
            "generated_text": "".join(token["text"] for token in self._tokens),
            "finish_reason": self._finish_reason,
            "generated_tokens": self._count,
            "prefill": first,
            "seed": 0,
            "tokens": self._tokens,
            "top_tokens": [first],
            "details": None,
        }

    def _add(self, token_id: int, text: str) -> bytes:
        token = {"id": token_id, "logprob": 0.0, "special": False, "text": text}
        self._tokens.append(token)
        return self._line(
            {"details": None, "generated_text": text, "tokens": token, "top_tokens": [token]}
        )

    def _line(self, data: dict[str, Any]) -> bytes:
        if self.request.parameters.return_protocol not in (None, "sse"):
            return b"data:" + json_line(data)
        return json_line(state([data] if self.form == "list" else data))


def state(data: object) -> dict[str, Any]:
    """Wrap what an event says."""
    return {"event": "message", "retry": 30000, "data": data}


def json_line(content: object) -> bytes:
    """Write JSON as that server does."""
    return (json.dumps(content, ensure_ascii=False) + "\n").encode()


def sse(content: object) -> bytes:
    """Write a Server-Sent Event as that server does where it reports its state."""
    return f"data: {json.dumps(content, ensure_ascii=False)}\r\n\r\n".encode()
