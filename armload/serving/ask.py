"""What is sent: one request, whatever the dialect."""

from __future__ import annotations

from typing import Literal

from armload.core.values import Value


class Message(Value):
    """A message of a chat."""

    role: Literal["system", "user", "assistant"]
    content: str


class Ask(Value):
    """One request.

    Attributes:
        prompt: a text to continue; empty where there are messages.
        messages: of a chat.
        max_tokens: the most that is to be generated.
        ignores_end: go on after the model's end-of-text token, up to ``max_tokens``.
    """

    prompt: str = ""
    messages: tuple[Message, ...] = ()
    max_tokens: int
    ignores_end: bool = False

    @property
    def last(self) -> str:
        """The prompt, or a chat's last message."""
        return self.messages[-1].content if self.messages else self.prompt

    @property
    def chat(self) -> tuple[Message, ...]:
        """The messages; a prompt is one of the user's."""
        return self.messages or (Message(role="user", content=self.prompt),)
