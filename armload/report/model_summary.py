"""What a model consists of."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from armload.core.columns import Column
from armload.core.values import counted, format_bytes
from armload.models.context_memory import ContextMemory
from armload.models.model_summary import FileSection, ModelSummary
from armload.report import formatting as words
from armload.report.layout import Details, Prose, Table, whole


def summary_table(summary: ModelSummary) -> Group:
    """Lay out a model's facts, its types, its KV cache, its layers, and what they leave out."""
    return Group(Details(_rows(summary)), *_parts(summary))


def _parts(summary: ModelSummary) -> Iterator[RenderableType]:
    tables = [_types(summary), _cache(summary), _sections(summary)]
    shown: list[RenderableType] = [table for table in tables if table.rows]
    for part in (*shown, *map(Prose, summary.notes)):
        yield Text("")
        yield part


def _rows(summary: ModelSummary) -> list[tuple[str, str | Text]]:
    rows: list[tuple[str, str | Text]] = [
        ("file", whole(str(summary.path))),
        ("sha256", summary.sha256),
        ("size", f"{format_bytes(summary.size_bytes)} ({summary.size_bytes:,} bytes)"),
        ("missing", format_bytes(summary.missing_bytes) if summary.missing_bytes else ""),
        ("name", summary.title),
        ("architecture", summary.architecture),
        ("parameters", _weights(summary)),
        ("layers", f"{summary.layers} of width {summary.width:,}{_inner(summary)}"),
        ("for MTP", _prediction_layers(summary)),
        ("windows", _windows(summary.context_memory)),
        ("shared KV", _sharing(summary.context_memory)),
        ("recurrent", _recurrent(summary.context_memory)),
        ("heads", _heads(summary) if summary.heads else ""),
        ("experts", _experts(summary)),
        ("context", f"{summary.context_length:,} tokens"),
        ("vocabulary", f"{summary.vocabulary:,} tokens"),
        ("tokenizer", summary.tokenizer),
        ("read per token", f"{format_bytes(summary.bytes_per_token)} of weights"),
    ]
    return [(label, value) for label, value in rows if value]


def _weights(summary: ModelSummary) -> str:
    written = f"{words.weights(summary.parameters)} ({summary.parameters:,})"
    if words.is_mostly_active(summary.parameters, summary.active_parameters):
        return written
    return f"{written}, {words.weights(summary.active_parameters)} active for a token"


def _inner(summary: ModelSummary) -> str:
    return f", feed-forward {summary.feed_forward:,}" if summary.feed_forward else ""


def _prediction_layers(summary: ModelSummary) -> str:
    count = summary.prediction_layers
    return f"the last {counted(count, 'layer')}, not used for plain decoding" if count else ""


def _windows(memory: ContextMemory) -> str:
    if not memory.window_layers:
        return ""
    layers = counted(memory.window_layers, "layer")
    return f"{layers} limited to the last {memory.window_tokens:,} tokens"


def _sharing(memory: ContextMemory) -> str:
    if not memory.sharing_layers:
        return ""
    return f"{counted(memory.sharing_layers, 'layer')} with the keys and values of earlier ones"


def _recurrent(memory: ContextMemory) -> str:
    if not memory.recurrent_layers:
        return ""
    layers = counted(memory.recurrent_layers, "layer")
    return f"{layers} with a state of {format_bytes(memory.state_bytes)} for each sequence"


def _heads(summary: ModelSummary) -> str:
    fewest, most = min(summary.kv_heads, default=0), max(summary.kv_heads, default=0)
    kv_heads = str(most) if fewest == most else f"{fewest} to {most}"
    return f"{summary.heads}, {kv_heads} for keys and values"


def _experts(summary: ModelSummary) -> str:
    return f"{summary.experts}, {summary.experts_used} used for a token" if summary.experts else ""


def _table(first: str, *numbers: str) -> Table:
    return Table(
        Column(heading=first), *(Column(heading=heading, is_number=True) for heading in numbers)
    )


def _types(summary: ModelSummary) -> Table:
    table = _table("type", "tensors", "size", "share")
    for each in summary.types:
        table.add(
            Text(each.type, style="bold"),
            str(each.tensors),
            format_bytes(each.size_bytes),
            f"{each.share:.1%}",
        )
    return table


def _cache(summary: ModelSummary) -> Table:
    table = _table("KV cache", "a token", f"{summary.context_length:,} tokens")
    for each in summary.cache:
        table.add(
            Text(each.type, style="bold"),
            format_bytes(each.bytes_per_token),
            format_bytes(each.context_bytes),
        )
    return table


def _sections(summary: ModelSummary) -> Table:
    table = _table("part", "tensors", "a layer", "size", "share")
    for each in summary.sections:
        table.add(
            Text(_part(each), style="bold"),
            str(each.tensors or ""),
            format_bytes(each.size_bytes / each.layers) if each.layers else "",
            format_bytes(each.size_bytes),
            f"{each.size_bytes / summary.whole_bytes:.1%}",
        )
    return table


def _part(section: FileSection) -> str:
    if not section.layers:
        return section.part
    if section.layers == 1:
        return f"layer {section.first_layer}"
    return f"layers {section.first_layer} to {section.last_layer}"
