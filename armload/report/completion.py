"""A shell's script for completion, and where it was written."""

from __future__ import annotations

from pathlib import Path

from armload.core.values import Value


class CompletionScript(Value):
    """What makes a shell complete the words of ``armload``.

    Attributes:
        shell: that it is for.
        script: its text.
        path: the file that it was written to; none where it was printed only.
        start_file: the shell's own, which loads that file; none where the shell finds it itself.
        start_line: of that file.
    """

    shell: str
    script: str
    path: Path | None = None
    start_file: Path | None = None
    start_line: str | None = None
