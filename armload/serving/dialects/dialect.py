"""What is sent, and what a protocol must say for the client to speak it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol, Self

from pydantic import Field, model_validator

from armload.analysis.load.records import ServerTimings
from armload.core.errors import UsageError
from armload.core.values import Value

_MUST_HAVE = {"tool": ("content", "tool_call_id"), "function": ("name",), "assistant": ()}
_OF_AN_ASSISTANT = ("content", "refusal", "audio", "tool_calls", "function_call")


class ChatMessage(Value):
    """A message of a chat, as OpenAI's API describes those of each role; sent as it was written.

    ``content`` is a text or a list of parts: an assistant's may be missing or null, such as where
    it calls tools. ``reasoning_content`` and ``reasoning`` are what llama-server, SGLang and vLLM
    take as an assistant's thoughts.
    """

    role: Literal["developer", "system", "user", "assistant", "tool", "function"]
    content: str | tuple[dict[str, Any], ...] | None = None
    name: str | None = None
    refusal: str | None = None
    audio: dict[str, Any] | None = None
    function_call: dict[str, Any] | None = None
    tool_calls: tuple[dict[str, Any], ...] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None

    @model_validator(mode="after")
    def _check_role(self) -> Self:
        for key in _MUST_HAVE.get(self.role, ("content",)):
            if getattr(self, key) is None:
                raise ValueError(f"a message of role {self.role} must have {key}")
        is_empty = all(getattr(self, key) is None for key in _OF_AN_ASSISTANT)
        if self.role == "assistant" and is_empty:
            raise ValueError(f"a message must have {' or '.join(_OF_AN_ASSISTANT)}")
        if not isinstance(self.content, str):
            for part in self.content or ():
                if not isinstance(part.get("type"), str):
                    raise ValueError('a part of content must have a type, such as "text"')
        return self

    @property
    def text(self) -> str:
        """The text of its content; of an image or other part there is none."""
        return text_of(self.content)


def text_of(content: object) -> str:
    """Return the text of a content, which may be null, a text, or a list of parts."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list | tuple):
        return ""
    return "".join(_texts_in(content))


def _texts_in(parts: Iterable[object]) -> Iterator[str]:
    for part in parts:
        match part:
            case str(text) | {"text": str(text)} | {"refusal": str(text)}:
                yield text
            case {"thinking": [*inner]}:  # of Mistral's reasoning models
                yield from _texts_in(inner)


class CompletionRequest(Value):
    """One request.

    Attributes:
        prompt: a text to continue; empty where there are messages.
        messages: of a chat.
        history: of a conversation: its turns before this one, each with its answer.
        max_tokens: the most that is to be generated.
        ignores_end: go on after the model's end-of-text token, up to ``max_tokens``.
        json_schema: that the answer must fit; none for any text.
        response_format: as OpenAI's API takes it, if it was written so; asks for the schema.
        tools: that a chat may call, as OpenAI describes them.
        tool_choice: which of them it must call, in OpenAI's form.
        extra_body: further keys of the request, such as sampling parameters.
        image_width, image_height: of the image in it, in pixels; none without.
        may_reuse: a server that keeps earlier prompts may skip what this one begins with.
    """

    prompt: str = ""
    messages: tuple[ChatMessage, ...] = ()
    history: tuple[ChatMessage, ...] = ()
    max_tokens: int
    ignores_end: bool = False
    json_schema: dict[str, Any] | None = None
    response_format: dict[str, Any] | None = None
    tools: tuple[dict[str, Any], ...] = ()
    tool_choice: str | dict[str, Any] | None = None
    extra_body: dict[str, Any] = Field(default_factory=dict)
    may_reuse: bool = False
    image_width: int | None = None
    image_height: int | None = None

    @property
    def last(self) -> str:
        """The prompt, or a chat's last message."""
        return self.messages[-1].text if self.messages else self.prompt

    @property
    def chat(self) -> tuple[ChatMessage, ...]:
        """The messages, after the turns before them; a prompt is one of the user's."""
        return (*self.history, *(self.messages or (ChatMessage(role="user", content=self.prompt),)))

    @property
    def whole_prompt(self) -> str:
        """The prompt after the turns before it, for a dialect that has no chats."""
        ends = {"assistant": "\n"}
        before = [each.text + ends.get(each.role, "") for each in self.history]
        return "".join((*before, self.prompt))

    @property
    def bytes(self) -> int:
        """Of all texts that are sent; of JSON, no token has less than one."""
        return len(self.model_dump_json())

    @property
    def words(self) -> int:
        """Of all that is sent. In a text of words between blanks, each has a token or more."""
        return sum(len(each.text.split()) for each in self.chat)

    def answered(self, answer: str) -> tuple[ChatMessage, ...]:
        """Return the history of the next turn."""
        return (*self.chat, ChatMessage(role="assistant", content=answer))

    def begun_with(self, prefix: str) -> CompletionRequest:
        """Return the request with a text before its own; in a chat, the system's message."""
        if not self.messages:
            return self.model_copy(update={"prompt": f"{prefix} {self.prompt}"})
        first, *others = self.messages
        if first.role in ("system", "developer"):
            messages = (
                first.model_copy(update={"content": f"{prefix} {first.text}"}),
                *others,
            )
        else:
            messages = (ChatMessage(role="system", content=prefix), *self.messages)
        return self.model_copy(update={"messages": messages})


@dataclass(frozen=True, kw_only=True)
class ToolCallPart:
    """What an event adds to one of an answer's tool calls.

    Attributes:
        index: its place among them; none where the service gives none: a name begins the next.
    """

    index: int | None
    name: str = ""
    arguments: str = ""


@dataclass(frozen=True, kw_only=True)
class Event:
    """What one event of a stream says.

    Attributes:
        text: that it adds to the answer, with thoughts and tool calls.
        thought: the part of the text that is a thought.
        content: the part of the text that is neither; none for all of it.
        tool_calls: parts of them.
        tokens: that the server had generated by then; none where it does not say. This and the
            next three are what the server wrote, whatever that is.
        prompt_tokens, generated_tokens: the server's final counts, where they are in it.
        cached_tokens: of the prompt's tokens, those that the server had in its cache; likewise.
        finish_reason: in the dialect's word; empty before the end.
        is_truncated: the slot's context was full.
        timings: the server's own.
        error: what went wrong; ends the request.
        is_whole: ``text`` repeats the whole answer, and adds nothing.
        dimensions: of the embedding that is the answer, or the number of texts that it ranks.
    """

    text: str = ""
    thought: str = ""
    content: str | None = None
    tool_calls: tuple[ToolCallPart, ...] = ()
    tokens: object = None
    prompt_tokens: object = None
    generated_tokens: object = None
    cached_tokens: object = None
    finish_reason: str = ""
    is_truncated: bool = False
    timings: ServerTimings | None = None
    error: str = ""
    is_whole: bool = False
    dimensions: int | None = None


class Dialect(Protocol):
    """A protocol for answers."""

    @property
    def name(self) -> str:
        """As ``--dialect`` takes it."""

    @property
    def path(self) -> str:
        """Where its requests go, below the service's address."""

    @property
    def is_streamed(self) -> bool:
        """Whether an answer is a stream of events, and not one JSON object."""

    def body(self, request: CompletionRequest, model: str) -> dict[str, Any]:
        """Return the body of a request.

        Raises:
            UsageError: the dialect cannot ask so.
        """

    def event(self, content: dict[str, Any]) -> Event:
        """Read one event.

        Raises:
            LookupError, TypeError, ValueError, AttributeError: it is none of the dialect's.
        """


def length_words(request: CompletionRequest) -> dict[str, Any]:
    """Return what makes an answer exactly as long as its limit, where that is wanted."""
    return {"ignore_eos": True} if request.ignores_end else {}


def is_fixed(body: dict[str, Any]) -> bool:
    """Say whether a request demands an answer that is exactly as long as its limit."""
    return body.get("ignore_eos") is True and not body.get("stop")


def prompt_alone(request: CompletionRequest, dialect: str) -> str:
    """Return the prompt, after the turns before it, for a dialect that has no chats."""
    if request.messages or request.tools:
        what = "tools" if request.tools else "chats (messages)"
        raise UsageError(
            f"Dialect {dialect} takes a prompt, and the data has {what}.",
            "Use --dialect openai-chat.",
        )
    return request.whole_prompt


def text_alone(request: CompletionRequest, dialect: str) -> str:
    """Return the prompt, for a dialect that cannot ask for JSON either."""
    if request.json_schema is not None:
        raise UsageError(
            f"Dialect {dialect} cannot ask for answers that fit a JSON schema.",
            "Use --dialect openai-chat, openai or llama-server.",
        )
    return prompt_alone(request, dialect)


def count_of(value: object) -> int | None:
    """Return a count that a server wrote; none of what is no whole number from 0."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value <= _MOST_COUNT else None


_MOST_COUNT = 1 << 53


def llama_timings(content: dict[str, Any]) -> ServerTimings | None:
    """Read the timings that llama-server adds to the last event; none of another server's."""
    timings = content.get("timings")
    if not isinstance(timings, dict):
        return None
    prompt, cached = count_of(timings.get("prompt_n", 0)), count_of(timings.get("cache_n", 0))
    return ServerTimings(
        prompt_tokens=None if prompt is None or cached is None else prompt + cached,
        prompt_ms=_milliseconds(timings.get("prompt_ms")),
        generated_tokens=count_of(timings.get("predicted_n")),
        generated_ms=_milliseconds(timings.get("predicted_ms")),
    )


def _milliseconds(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= _MOST_COUNT else None


def cached_tokens(content: dict[str, Any]) -> object:
    """Read how much of a prompt was cached, as llama-server's timings or OpenAI's usage say it."""
    match content:
        case {"timings": {"cache_n": cached}}:
            return cached
        case {"usage": {"prompt_tokens_details": {"cached_tokens": cached}}}:
            return cached
    return None


def error_in(content: dict[str, Any]) -> str:
    """Return the message of an event that reports an error; empty of any other.

    OpenAI's and llama-server's ``error`` is an object, that of TGI a text; older vLLM's event is
    the error. Where all is well, gateways write ``"error": null``.
    """
    error = content.get("error")
    if not error and content.get("object") == "error":
        error = content
    if isinstance(error, dict):
        return str(error.get("message") or error)
    return str(error) if error else ""
