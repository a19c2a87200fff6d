"""Thoughts that a server leaves in the text of its answer, told apart as the text arrives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

_TAGS = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<seed:think>", "</seed:think>"),
    ("[THINK]", "[/THINK]"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
)
"""Of DeepSeek, Qwen and most others; of Granite and Claude-like ones; Seed; Mistral; Cohere."""

Said = tuple[bool, str]
"""Whether it is a thought, and what it says."""


class ThoughtSplitter:
    """Reads one answer. Only what stands at its very beginning can be thoughts.

    A tag elsewhere is text: a model may be asked about tags.
    """

    def __init__(self) -> None:
        self._state: Literal["begin", "thought", "gap", "answer"] = "begin"
        self._held = ""
        self._end = ""

    def feed(self, text: str) -> Iterator[Said]:
        """Yield what is known with this text; what may be the begin of a tag waits for more."""
        self._held += text
        if self._state == "begin":
            self._begin()
        if self._state == "thought":
            yield from self._think()
        if self._state == "gap" and (rest := self._held.lstrip()):
            self._state, self._held = "answer", rest
        if self._state == "answer" and self._held:
            rest, self._held = self._held, ""
            yield False, rest

    def end(self) -> Iterator[Said]:
        """Yield what waited for more."""
        rest, self._held = self._held, ""
        if rest.strip():
            yield self._state == "thought", rest

    def _begin(self) -> None:
        bare = self._held.lstrip()
        for begin, end in _TAGS:
            if bare.startswith(begin):
                self._state, self._end = "thought", end
                self._held = bare.removeprefix(begin)
                return
        if bare and not any(begin.startswith(bare) for begin, _ in _TAGS):
            self._state = "answer"

    def _think(self) -> Iterator[Said]:
        thought, end, rest = self._held.partition(self._end)
        if end:
            self._state, self._held = "gap", rest
        else:
            kept = _overlap(thought, self._end)
            thought, self._held = thought[: len(thought) - kept], thought[len(thought) - kept :]
        if thought:
            yield True, thought


def _overlap(text: str, tag: str) -> int:
    """Return how much of a tag's beginning a text ends with."""
    return next((n for n in range(len(tag) - 1, 0, -1) if text.endswith(tag[:n])), 0)
