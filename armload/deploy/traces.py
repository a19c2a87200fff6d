"""A run's trace as bytes: which of its lines are whole."""

from __future__ import annotations


def whole_lines(content: bytes) -> bytes:
    """Return a trace up to the end of its last whole line.

    Each line is an object of JSON. Storage that was full, or a program that was killed, leaves the
    beginning of one, and a power cut leaves zeros on some file systems. Such a beginning, with a
    ``#`` behind it, was kept as a line by earlier versions.
    """
    content = content.partition(b"\0")[0].partition(b"#\n")[0]
    return content[: content.rfind(b"}\n") + 2] if b"}\n" in content else b""


def is_whole(line: bytes) -> bool:
    """Say whether a line was written to its end; beginnings stay where there was space again."""
    return line.endswith(b"}")


def any_cut(content: bytes) -> bool:
    """Say whether a trace holds the beginning of a line without its end."""
    return not all(is_whole(line) for line in content.removesuffix(b"\n").split(b"\n") if line)
