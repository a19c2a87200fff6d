"""What lies in the cache, for a terminal and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from armload.build.shelf import ShelvedBuild
from armload.core.cache import Decision, Kind
from armload.core.values import format_bytes

if TYPE_CHECKING:
    from rich.table import Table

_STYLES = {"finished": "green", "under way": "cyan", "unfinished": "yellow", "unreadable": "red"}


def builds_table(builds: Sequence[ShelvedBuild]) -> Table:
    """Lay out builds, one a line."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("build", no_wrap=True)
    table.add_column("target", no_wrap=True)
    table.add_column("what it is", overflow="fold")
    table.add_column("size", justify="right", no_wrap=True)
    table.add_column("when (UTC)", no_wrap=True)
    for build in builds:
        state = Text(build.state, style=_STYLES[build.state])
        told = _told(build)
        table.add_row(
            Text(build.build_id, style="bold"),
            Text(build.programs[0].target if build.programs else "-"),
            Text.assemble(state, ": ", told) if told else state,
            format_bytes(build.size_bytes),
            build.when_utc[:16].replace("T", " "),
        )
    return table


def _told(build: ShelvedBuild) -> str:
    if not build.programs:
        return build.reason
    one = build.programs[0]
    programs = ", ".join(program.program for program in build.programs)
    return f"{programs} ({one.source}, {one.compiler})"


def kinds_table(kinds: Sequence[Kind], chosen: Sequence[Kind]) -> Table:
    """Lay out the kinds of things in the cache; those that are to be freed stand out."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("kind", no_wrap=True)
    table.add_column("size", justify="right", no_wrap=True)
    table.add_column("what it is", overflow="fold")
    table.add_column("to have it again", overflow="fold")
    for kind in kinds:
        if kind.items or kind in chosen:
            table.add_row(
                Text(kind.name, style="bold" if kind in chosen else ""),
                format_bytes(kind.size_bytes),
                Text(kind.what),
                Text(kind.again),
            )
    return table


def cleaned_document(kinds: Sequence[Kind], decisions: Sequence[Decision]) -> str:
    """Return one JSON object: the kinds with their sizes, and what became of each item chosen."""
    freed = [decision for decision in decisions if decision.fate == "freed"]
    return json.dumps(
        {
            "freed_bytes": sum(decision.item.size_bytes for decision in freed),
            "kinds": [{"kind": kind.name, "size_bytes": kind.size_bytes} for kind in kinds],
            "items": [
                {
                    "kind": decision.kind,
                    "label": decision.item.label,
                    "paths": [str(path) for path in decision.item.paths],
                    "size_bytes": decision.item.size_bytes,
                    "fate": decision.fate,
                    "reason": decision.reason,
                }
                for decision in decisions
            ],
        },
        indent=1,
    )
