"""Programs that were built, as a table for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from armload.build.binary import Binary
from armload.core.values import format_bytes

if TYPE_CHECKING:
    from rich.table import Table


def binaries_table(binaries: Sequence[Binary]) -> Table:
    """Lay out inspected programs, one a line."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("program", "target", "size", "CPU features that it needs", "file"):
        table.add_column(heading, overflow="fold")
    for binary in binaries:
        table.add_row(
            Text(binary.program, style="bold"),
            Text(binary.target),
            format_bytes(binary.size_bytes),
            Text(" ".join(use.feature for use in binary.features if not use.guarded)),
            Text(str(binary.path)),
        )
    return table
