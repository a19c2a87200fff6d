"""A conversation of a person with a served model."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

from armload.analysis.load.records import Outcome, RequestRecord
from armload.analysis.load.request_columns import has_filled
from armload.core.errors import ArmloadError, RunError, UsageError
from armload.core.values import Value, counted
from armload.serving.chat_partner import ChatPartner
from armload.serving.client import Client
from armload.serving.connections import connected
from armload.serving.conversation import is_too_long
from armload.serving.dialects.dialect import ChatMessage, CompletionRequest, Event
from armload.serving.dialects.openai import OpenAiChat
from armload.serving.interrupts import Interrupts
from armload.serving.readiness import unreachable
from armload.serving.thoughts import ThoughtSplitter

Heard = Callable[[bool, str], None]
"""Is given the answer as it comes: whether it is a thought, and what it says."""

ANSWER_TOKENS = 1024
"""The most of an answer, where the service does not say how long its context is."""

_TAKES_NO_CHATS = (404, 405, 501)

VARIED_TEMPERATURE = 0.8
"""Another answer of a greedy service would be the same one; llama-server's own default."""


class ChatSettings(Value):
    """How a person wants answers.

    Attributes:
        system: what the model is told before the conversation; empty for nothing.
        max_tokens: of an answer; none for the rest of the context.
        temperature: none for the service's own.
        timeout_s: the most that an answer may take.
    """

    system: str = ""
    max_tokens: int | None = None
    temperature: float | None = None
    timeout_s: float


class Reply(Value):
    """What came of a question.

    Attributes:
        answer, thoughts: as far as they came.
        outcome: as of any request; ``cancelled`` where the person ended it.
        error: what the server or the system said of a failure.
        finish_reason: in the server's word.
        prompt_tokens: of the conversation so far; this and the next are the server's counts.
        cached_tokens: of those, that the server had not to compute again.
        generated_tokens: of thoughts and answer.
        context_tokens: that the conversation may have; none where the service does not say.
        is_full: prompt and answer fill the context.
        ttft_s: from the question to the first text.
        decode_tps: tokens/s of the answer.
    """

    answer: str
    thoughts: str = ""
    outcome: Outcome
    error: str = ""
    finish_reason: str = ""
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    generated_tokens: int | None = None
    context_tokens: int | None = None
    is_full: bool = False
    ttft_s: float | None = None
    decode_tps: float | None = None

    @property
    def used_tokens(self) -> int | None:
        """Of the context, after the answer."""
        if self.prompt_tokens is None or self.generated_tokens is None:
            return None
        return self.prompt_tokens + self.generated_tokens


Answered = tuple[Reply, ArmloadError | None]
"""What came of a question, and why that is no whole answer; none where the person ended it."""


class ContextFullError(RunError):
    """A conversation is as long as the model can have it."""


class Chat:
    """A conversation, which each question sends whole.

    Attributes:
        settings: may be replaced between questions.
        messages: so far, without the system's.
        asked: the last question; none before the first.

    Args:
        interrupts: end an answer.
    """

    def __init__(
        self, partner: ChatPartner, settings: ChatSettings, interrupts: Interrupts | None = None
    ) -> None:
        self.partner = partner
        self.settings = settings
        self._interrupts = interrupts or Interrupts()
        self.messages: tuple[ChatMessage, ...] = ()
        self.asked: ChatMessage | None = None
        self._before: tuple[ChatMessage, ...] = ()

    @property
    def whole(self) -> tuple[ChatMessage, ...]:
        """All messages."""
        system = self.settings.system
        return (*((ChatMessage(role="system", content=system),) if system else ()), *self.messages)

    def clear(self) -> None:
        """Forget the conversation; the system's message stays."""
        self.messages, self.asked, self._before = (), None, ()

    def ask(self, question: ChatMessage, heard: Heard) -> Answered:
        """Send a question, and return what became of it; Ctrl-C ends the answer.

        What came of the answer is part of the conversation; without any, the question is not.
        """
        self.asked, self._before = question, self.messages
        return self._ask(question, heard, {})

    def ask_again(self, heard: Heard) -> Answered:
        """Answer the last question again.

        Raises:
            LookupError: there is none.
        """
        if self.asked is None:
            raise LookupError
        self.messages = self._before
        seed = random.SystemRandom().randrange(1 << 31)
        return self._ask(self.asked, heard, {"seed": seed, **self._varied()})

    def _varied(self) -> dict[str, Any]:
        own = self.settings.temperature
        is_greedy = own == 0 or (own is None and self.partner.properties.is_greedy)
        return {"temperature": VARIED_TEMPERATURE} if is_greedy else {}

    def _ask(self, question: ChatMessage, heard: Heard, more: dict[str, Any]) -> Answered:
        properties = self.partner.properties
        text = question.text
        request = CompletionRequest(
            prompt=text,
            messages=() if question.content == text else (question,),
            history=self.whole,
            max_tokens=self.settings.max_tokens or properties.context_tokens or ANSWER_TOKENS,
            extra_body={
                "temperature": self.settings.temperature,
                **self.partner.extra_body,
                **more,
            },
        )
        listener = _Listener(heard)
        record = asyncio.run(self._sent(request, listener))
        listener.end()
        if record is None:
            return Reply(answer="", outcome="cancelled"), None
        reply = _reply(record, listener, properties.context_tokens)
        if reply.answer:
            said = ChatMessage(role="assistant", content=reply.answer)
            self.messages = (*self.messages, question, said)
        error = _failure(reply, record, self.partner)
        if error is None or reply.is_full:
            self.partner.look_again()
            return reply, error
        is_silent = reply.outcome in ("refused", "dropped")
        return reply, (self.partner.why_gone() if is_silent else None) or error

    async def _sent(self, request: CompletionRequest, listener: _Listener) -> RequestRecord | None:
        """Send a request; return what became of it, or none if it was ended before that."""
        target = self.partner.target
        listener.task = asyncio.current_task()
        try:
            with self._interrupts.ending_this_task():
                async with connected(target.api_key) as session:
                    timeout_s = self.settings.timeout_s
                    client = Client(session, target.url, target.dialect, target.model, timeout_s)
                    return await client.send(
                        request, number=0, scheduled_s=0.0, heard=listener.hear
                    )
        except asyncio.CancelledError:
            return None


class _Listener:
    """Passes an answer on as it comes, and keeps it.

    Attributes:
        task: that reads it.
    """

    def __init__(self, heard: Heard) -> None:
        self.task: asyncio.Task[Any] | None = None
        self.parts: dict[bool, list[str]] = {True: [], False: []}
        self._heard = heard
        self._splitter = ThoughtSplitter()
        self._fault: OSError | None = None

    def hear(self, event: Event) -> None:
        content = event.text if event.content is None else event.content
        try:
            if event.thought:
                self._pass_on(is_thought=True, text=event.thought)
            for is_thought, text in self._splitter.feed(content):
                self._pass_on(is_thought=is_thought, text=text)
        except OSError as error:  # of the output; one of the connection is the request's
            self._fault = self._fault or error
            if self.task is not None:
                self.task.cancel()

    def end(self) -> None:
        """Pass on what waited.

        Raises:
            OSError: what it was passed to cannot be written.
        """
        if self._fault is not None:
            raise self._fault
        for is_thought, text in self._splitter.end():
            self._pass_on(is_thought=is_thought, text=text)

    def _pass_on(self, *, is_thought: bool, text: str) -> None:
        self.parts[is_thought].append(text)
        self._heard(is_thought, text)


def _reply(record: RequestRecord, listener: _Listener, context_tokens: int | None) -> Reply:
    timings = record.timings
    prompt, generated = record.prompt_tokens, record.generated_tokens
    if timings is not None:
        prompt = timings.prompt_tokens if prompt is None else prompt
        generated = timings.generated_tokens if generated is None else generated
    is_refused = record.outcome in ("http", "server-error") and is_too_long(record.error)
    first_s, begun_s = record.first_chunk_s, record.begun_s
    return Reply(
        answer="".join(listener.parts[False]),
        thoughts="".join(listener.parts[True]),
        outcome=record.outcome,
        error=record.error,
        finish_reason=record.finish_reason,
        prompt_tokens=prompt,
        cached_tokens=record.cached_tokens,
        generated_tokens=generated,
        context_tokens=context_tokens,
        is_full=is_refused or (record.outcome == "ok" and has_filled(record, context_tokens)),
        ttft_s=None if first_s is None or begun_s is None else first_s - begun_s,
        decode_tps=_decode_tps(record),
    )


def _decode_tps(record: RequestRecord) -> float | None:
    """Return tokens/s by the server's own time, or else by when its chunks arrived."""
    timings = record.timings
    if timings and (timings.generated_tokens or 0) > 1 and timings.generated_ms:
        return 1000 * (timings.generated_tokens or 0) / timings.generated_ms
    later = record.later_tokens
    lasts_s = record.chunks[-1][0] - record.chunks[0][0] if record.chunks else 0.0
    return later / lasts_s if later and lasts_s > 0 else None


def _failure(reply: Reply, record: RequestRecord, partner: ChatPartner) -> ArmloadError | None:
    place = partner.place
    if reply.is_full:
        size = f" of {counted(reply.context_tokens, 'token')}" if reply.context_tokens else ""
        what = "The answer has filled" if reply.answer else "The conversation no longer fits into"
        return ContextFullError(
            f"{what} the model's context{size}.",
            "Ask less at once, or serve the model with a larger --context.",
        )
    if reply.outcome in ("ok", "cancelled"):
        return None
    if error := unreachable(partner.target, record):
        return error
    if reply.outcome == "empty":
        return RunError(f"{place} answered nothing: {reply.error}.", "Ask again.")
    if reply.outcome == "timeout":
        return RunError(f"{place}: {reply.error}.", "For longer answers, use --timeout SECONDS.")
    if record.status in _TAKES_NO_CHATS or reply.outcome == "malformed":
        return UsageError(
            f"{place}: the service does not answer chats at {partner.target.dialect.path}: "
            f"{reply.error}",
            "Use a service that speaks OpenAI's protocol, such as armload serve, vLLM or Ollama.",
        )
    what = f"{place} did not finish its answer" if reply.answer else f"{place} did not answer"
    return RunError(f"{what}: {reply.error or reply.outcome}.", "Ask again.")


def lacks_chats(partner: ChatPartner) -> bool:
    """Say whether the model continues texts, and does not answer."""
    return partner.target.dialect.name != OpenAiChat.name
