"""Programs that were built, as a table for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from armload.build.binary import Binary
from armload.core.values import format_bytes
from armload.report.layout import Column, Rows, whole


def binaries_table(binaries: Sequence[Binary]) -> Rows:
    """Lay out inspected programs, one a line."""
    table = Rows(
        Column(heading="program"),
        Column(heading="target"),
        Column(heading="size", is_number=True),
        Column(heading="CPU features that it needs", is_prose=True),
        Column(heading="file", below=""),
    )
    for binary in binaries:
        table.add(
            Text(binary.program, style="bold"),
            binary.target,
            format_bytes(binary.size_bytes),
            " ".join(use.feature for use in binary.features if not use.guarded),
            whole(str(binary.path)),
        )
    return table
