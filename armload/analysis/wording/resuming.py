"""What an interrupted command has done already, as the one that resumes it says."""

from __future__ import annotations

START_OVER = "To start over instead, add --new."


def resuming(what: str, done: str) -> str:
    """Say what is resumed.

    Args:
        what: the id of a sweep, a search or an evaluation.
        done: how much of it is there, such as ``3 runs``.
    """
    return f"Resuming {what}, with {done} already done. {START_OVER}"
