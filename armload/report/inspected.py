"""What a program's inspection found, for a terminal and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from armload.build.binary import FeatureUse
from armload.build.fit import Fit
from armload.build.inspection import Inspection
from armload.core.values import format_bytes

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

_VERDICTS = {
    "runs": ("runs", "green"),
    "slow": ("runs slowly", "yellow"),
    "perhaps": ("may run", "yellow"),
    "no": ("does not run", "red"),
}


def document(inspection: Inspection, fits: Sequence[Fit]) -> str:
    """Return one JSON object: the inspection, and under ``targets`` where the program runs."""
    content = inspection.model_dump(mode="json")
    return json.dumps({**content, "targets": [fit.model_dump() for fit in fits]}, indent=1)


def inspection_table(inspection: Inspection, fits: Sequence[Fit]) -> Group:
    """Lay out what a program is, the CPU features that it uses, and where it runs."""
    from rich.console import Group
    from rich.padding import Padding

    parts = [_facts(inspection), _features(inspection.features), _fits(fits)]
    return Group(*(Padding(part, (0, 0, 1, 0)) for part in parts[:-1] if part.row_count), parts[-1])


def _facts(inspection: Inspection) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    rows = [
        ("file", str(inspection.path)),
        ("sha256", inspection.sha256),
        ("size", format_bytes(inspection.size_bytes)),
        ("architecture", inspection.architecture),
        ("linked", _linked(inspection)),
        ("stripped", "yes" if inspection.is_stripped else "no: it carries symbols"),
    ]
    if not inspection.features and inspection.architecture == "aarch64":
        rows.append(("CPU features", "none but those that every 64-bit ARM CPU has"))
    for label, value in rows:
        table.add_row(label, Text(value))
    return table


def _linked(inspection: Inspection) -> str:
    if inspection.is_static:
        return "statically"
    wanted = [inspection.interpreter] if inspection.interpreter else []
    return f"dynamically: it needs {', '.join([*wanted, *inspection.needed])}"


def _features(uses: Sequence[FeatureUse]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("CPU feature", no_wrap=True)
    table.add_column("uses", justify="right", no_wrap=True)
    table.add_column("checked at\nrun time", justify="right", no_wrap=True)
    table.add_column("first at", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("in", overflow="fold")
    for use in uses:
        table.add_row(
            Text(use.feature, style="bold"),
            f"{use.count:,}",
            "all" if use.guarded else f"{use.guarded_count:,}",
            f"{use.address:#x}",
            Text(use.mnemonic),
            Text(use.symbol or ""),
        )
    return table


def _fits(fits: Sequence[Fit]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("target", no_wrap=True)
    table.add_column("the program", no_wrap=True)
    table.add_column("why", overflow="fold")
    for fit in fits:
        word, style = _VERDICTS[fit.verdict]
        table.add_row(Text(fit.target, style="bold"), Text(word, style=style), Text(fit.reason))
    return table
