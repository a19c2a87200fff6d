"""Results that travel: runs in other formats, documents that others can read, and a leaderboard."""

from typing import Literal

Format = Literal["markdown", "csv", "json", "llama-bench"]

Included = Literal["board", "model", "prompt"]
"""What is published only if it is asked for: two names, and the prompt with the text."""
