"""Reasoning sections, which are not graded."""

from __future__ import annotations

_BEGIN, _END = "<think>", "</think>"


def without_thoughts(text: str) -> str:
    """Return what follows the reasoning; nothing if that was cut short.

    Chat templates may open the section in the prompt, so that the answer only closes it.
    """
    before, opened, rest = text.rpartition(_END)[2].partition(_BEGIN)
    return before if opened else before + rest
