"""A conversation: an answer as a document, its figures in a line, and the file it is saved in."""

from __future__ import annotations

import json
from collections.abc import Sequence

from armload.core.values import counted
from armload.report import formatting as fmt
from armload.serving.chat import Chat, Reply
from armload.serving.dialects.dialect import ChatMessage


class ChatAnswer(Reply):
    """An answer to one question.

    Attributes:
        board: that serves the model; empty for a service at an address.
        url: of the service, where it was given.
        model: its name.
        question: its text.
    """

    board: str
    url: str | None
    model: str
    question: str

    @classmethod
    def of(cls, chat: Chat, question: str, reply: Reply) -> ChatAnswer:
        target = chat.partner.target
        return cls(
            **dict(reply),
            board=target.board,
            url=None if target.board else target.url,
            model=target.model,
            question=question,
        )


def figures_line(reply: Reply) -> str:
    """Say how fast an answer came, and how much of the context is used; as far as it is known."""
    parts = []
    if reply.decode_tps is not None:
        parts.append(f"{fmt.rate(reply.decode_tps)} tokens/s")
    if reply.generated_tokens is not None:
        parts.append(counted(reply.generated_tokens, "token"))
    if reply.ttft_s is not None:
        parts.append(f"first token after {fmt.seconds(reply.ttft_s)}")
    used, size = reply.used_tokens, reply.context_tokens
    if used is not None and size is not None:
        parts.append(f"context {used:,} of {size:,} ({used / size:.0%})")
    elif used is not None:
        parts.append(f"context {used:,}")
    return " | ".join(parts)


def saved_text(messages: Sequence[ChatMessage], model: str, *, as_json: bool) -> str:
    """Write a conversation as Markdown, or as the messages that OpenAI's API takes."""
    if as_json:
        shown = [message.model_dump(exclude_unset=True) for message in messages]
        return json.dumps({"model": model, "messages": shown}, indent=1, ensure_ascii=False) + "\n"
    parts = [f"# Conversation with {model}"]
    parts += [f"## {message.role.capitalize()}\n\n{message.text}" for message in messages]
    return "\n\n".join(parts) + "\n"
