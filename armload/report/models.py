"""What a model consists of, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from armload.core.values import format_bytes
from armload.models.anatomy import Anatomy, Section
from armload.report import formatting as words
from armload.report.layout import Column, Details, Prose, Rows, whole


def anatomy_table(anatomy: Anatomy) -> Group:
    """Lay out a model's facts, its types, its KV cache, its layers, and what they leave out."""
    return Group(Details(_rows(anatomy)), *_parts(anatomy))


def _parts(anatomy: Anatomy) -> Iterator[RenderableType]:
    tables = [_types(anatomy), _cache(anatomy), _sections(anatomy)]
    shown: list[RenderableType] = [table for table in tables if not table.is_empty]
    for part in (*shown, *map(Prose, anatomy.notes)):
        yield Text("")
        yield part


def _rows(anatomy: Anatomy) -> list[tuple[str, str | Text]]:
    rows: list[tuple[str, str | Text]] = [
        ("file", whole(str(anatomy.path))),
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


def _table(first: str, *numbers: str) -> Rows:
    return Rows(
        Column(heading=first), *(Column(heading=heading, is_number=True) for heading in numbers)
    )


def _types(anatomy: Anatomy) -> Rows:
    table = _table("type", "tensors", "size", "share")
    for each in anatomy.types:
        table.add(
            Text(each.type, style="bold"),
            str(each.tensors),
            format_bytes(each.size_bytes),
            f"{each.share:.1%}",
        )
    return table


def _cache(anatomy: Anatomy) -> Rows:
    table = _table("KV cache", "a token", f"{anatomy.context_length:,} tokens")
    for each in anatomy.cache:
        table.add(
            Text(each.type, style="bold"),
            format_bytes(each.bytes_per_token),
            format_bytes(each.context_bytes),
        )
    return table


def _sections(anatomy: Anatomy) -> Rows:
    table = _table("part", "tensors", "a layer", "size", "share")
    for each in anatomy.sections:
        table.add(
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
