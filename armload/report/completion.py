"""A shell's script for completion, and where it was written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from armload.core.values import Value
from armload.report.layout import whole
from armload.report.result import Part, Verbatim


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


def script_lines(script: CompletionScript) -> Iterator[Part]:
    """Yield where a script was written, and when it takes effect; or its text."""
    if script.path is None:
        yield Verbatim(text=script.script)
        return
    yield whole(f"Written: {script.path}")
    if script.start_file:
        yield whole(f"Loaded by a line in {script.start_file}")
    yield f"It takes effect when you open a new {script.shell}."
