"""What a model consists of, for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from armload.core.values import format_bytes
from armload.models.anatomy import Anatomy, Section
from armload.report import words

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table


def anatomy_table(anatomy: Anatomy) -> Group:
    """Lay out a model's facts, its types, its KV cache, its layers, and what they leave out."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    parts = [_types(anatomy), _cache(anatomy), _sections(anatomy)]
    return Group(
        _facts(anatomy),
        *(Padding(part, (1, 0, 0, 0)) for part in parts if part.row_count),
        *(Text(f"\n{note}") for note in anatomy.notes),
    )


def _facts(anatomy: Anatomy) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for label, value in _rows(anatomy):
        table.add_row(label, Text(value))
    return table


def _rows(anatomy: Anatomy) -> list[tuple[str, str]]:
    rows = [
        ("file", str(anatomy.path)),
        ("sha256", anatomy.sha256),
        ("size", f"{format_bytes(anatomy.size_bytes)} ({anatomy.size_bytes:,} bytes)"),
        ("missing", format_bytes(anatomy.missing_bytes) if anatomy.missing_bytes else ""),
        ("name", anatomy.title),
        ("architecture", anatomy.architecture),
        ("parameters", f"{words.weights(anatomy.parameters)} ({anatomy.parameters:,})"),
        ("layers", f"{anatomy.layers} of width {anatomy.width:,}{_inner(anatomy)}"),
        ("heads", _heads(anatomy) if anatomy.heads else ""),
        ("experts", f"{anatomy.experts}, {anatomy.experts_used} used for a token"),
        ("context", f"{anatomy.context_length:,} tokens"),
        ("vocabulary", f"{anatomy.vocabulary:,} tokens"),
        ("tokenizer", anatomy.tokenizer),
        ("read per token", f"{format_bytes(anatomy.bytes_per_token)} of weights"),
    ]
    return [
        (label, value) for label, value in rows if value and (label != "experts" or anatomy.experts)
    ]


def _inner(anatomy: Anatomy) -> str:
    return f", feed-forward {anatomy.feed_forward:,}" if anatomy.feed_forward else ""


def _heads(anatomy: Anatomy) -> str:
    fewest, most = min(anatomy.kv_heads, default=0), max(anatomy.kv_heads, default=0)
    kv_heads = str(most) if fewest == most else f"{fewest} to {most}"
    return f"{anatomy.heads}, {kv_heads} for keys and values"


def _types(anatomy: Anatomy) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("type", no_wrap=True)
    for heading in ("tensors", "size", "share"):
        table.add_column(heading, justify="right", no_wrap=True)
    for each in anatomy.types:
        table.add_row(
            Text(each.type, style="bold"),
            str(each.tensors),
            format_bytes(each.size_bytes),
            f"{each.share:.1%}",
        )
    return table


def _cache(anatomy: Anatomy) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("KV cache", no_wrap=True)
    table.add_column("a token", justify="right", no_wrap=True)
    table.add_column(f"{anatomy.context_length:,} tokens", justify="right", no_wrap=True)
    for each in anatomy.cache:
        table.add_row(
            Text(each.type, style="bold"),
            format_bytes(each.bytes_per_token),
            format_bytes(each.context_bytes),
        )
    return table


def _sections(anatomy: Anatomy) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("part", no_wrap=True)
    for heading in ("tensors", "a layer", "size", "share"):
        table.add_column(heading, justify="right", no_wrap=True)
    for each in anatomy.sections:
        table.add_row(
            Text(_part(each), style="bold"),
            str(each.tensors or ""),
            format_bytes(each.size_bytes / each.layers) if each.layers else "",
            format_bytes(each.size_bytes),
            f"{each.size_bytes / anatomy.whole_bytes:.1%}",
        )
    return table


def _part(section: Section) -> str:
    if not section.layers:
        return section.part
    if section.layers == 1:
        return f"layer {section.first_layer}"
    return f"layers {section.first_layer} to {section.last_layer}"
